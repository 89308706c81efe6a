// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/internal/globals"
	"github.com/bpfman/bpfman-operator/internal/live"
)

const tailLong = `Show the events that programs send to a ring buffer, from now on: a map of one of bpfman's objects, on each node that the object selects, or any map of a node, by its kernel ID. Each line shows when the event was seen, the node, the pod if the programs are attached in one only, with the container of uprobes, the type, and the fields.

An application that reads the ring buffer still gets all events. If it reads faster than the command, the kernel overwrites events that the command hasn't seen, and the command shows how many bytes they had. If no application reads the ring buffer, it fills up. The kernel then refuses new events, and the command says so.

Events are decoded with the types of the programs (BTF), by the only struct that has the event's length, or by the struct that --type names. Others are printed as hexadecimal digits. Perf event arrays can't be tailed, because reading them takes the events away from their application.

To end the command, press Ctrl-C, or use --for or --limit. After a reload of the program, the command continues with the new map.

` + liveRights + ` For the maps of an object, it also requires permission to list the object's bpfprograms or bpfnsprograms. With permission to get bpfnodes, it also shows the pod.`

const tailExample = `  # Show the events of an object, on all nodes
  kubectl bpfman tail tracepointprogram/kill-events kill_events

  # Show the first ten that arrive within a minute, as objects
  kubectl bpfman tail tracepointprogram/kill-events kill_events --limit 10 --for 1m -o json

  # Show what no application has read, and then new events, as the struct kill_event
  kubectl bpfman tail tracepointprogram/kill-events kill_events --unread --type kill_event

  # Show the events in a map that isn't bpfman's; kubectl bpfman programs -o json prints the IDs
  kubectl bpfman tail --node worker-1 --map-id 42`

type tailOptions struct {
	maps     mapFlags
	typ      string
	unread   bool
	limit    int
	duration time.Duration
	format   string
}

func tailCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	var o tailOptions
	command := &cobra.Command{
		Use:               "tail (KIND/NAME [MAP] | --node NODE --map-id ID)",
		Short:             "Show the events in a ring buffer",
		Long:              tailLong,
		Example:           tailExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeMap(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	o.maps.addTo(command, connect)
	flags := command.Flags()
	flags.StringVar(&o.typ, "type", "", "Struct of the events. By default, the only one that has the event's length.")
	flags.BoolVar(&o.unread, "unread", false, "Begin with the first event that no application has read.")
	flags.IntVar(&o.limit, "limit", 0, "Number of events after which to end; 0 for no limit.")
	flags.DurationVar(&o.duration, "for", 0, "Time after which to end; 0 for no limit.")
	addLineFormat(command, &o.format, "event")
	return command
}

// tailed is an event, or how many bytes with events were overwritten, as JSON or YAML.
type tailed struct {
	Time      time.Time `json:"time,omitzero"`
	Node      string    `json:"node"`
	Map       string    `json:"map"`
	MapID     uint32    `json:"mapid"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	Container string    `json:"container,omitempty"`
	Type      string    `json:"type,omitempty"`
	// Length is the number of bytes of the event.
	Length uint32          `json:"length,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	// Overwritten is the number of bytes of events that are missing here.
	Overwritten uint64 `json:"overwritten,omitempty"`
}

func (o tailOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	switch {
	case o.limit < 0 || o.duration < 0:
		return errors.New("--limit and --for must not be negative")
	case len(args) == 2 && globals.IsSection(args[1]):
		return fmt.Errorf("%s has global variables, which aren't events: to show them, use kubectl bpfman dump", args[1])
	}
	if err := checkLineFormat(o.format); err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	wanted, err := o.maps.wanted(ctx, c, args)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if o.duration > 0 {
		defer time.AfterFunc(o.duration, end).Stop()
	}
	all := &tailing{options: o, streams: streams, awaited: len(wanted.asked), nodes: len(wanted.asked), end: end}
	where := &places{cluster: c, object: args}
	return inspectors.Each(wanted.asked, func(i inspectors.Inspector) error {
		one := &tailedNode{tailing: all, name: i.Node, only: func(mapID uint32) inventory.Place { return where.only(ctx, i.Node, mapID) }}
		return one.ended(wanted.ask(ctx, i, func(which []string) error {
			arguments := append([]string{live.CommandTail}, which...)
			if o.typ != "" {
				arguments = append(arguments, "--type", o.typ)
			}
			if o.unread || one.began() { // after a reload, what is in the new map is new
				arguments = append(arguments, "--unread")
			}
			return inspectors.Ask(ctx, i, one.take, arguments...)
		}))
	})
}

// places finds out where the programs with a map are attached.
type places struct {
	cluster *cluster.Cluster
	// object are the arguments that specify the map's object, if there are any.
	object []string

	mu      sync.Mutex
	asked   time.Time
	reports []v1alpha1.ProgramObject // of all nodes
}

// only returns the only pod in which programs with a map are attached, or an empty place if that isn't known.
func (p *places) only(ctx context.Context, node string, mapID uint32) (only inventory.Place) {
	reports := p.reportsOf(ctx)
	_ = p.cluster.BpfNodes(ctx, []string{node}, func(n *v1alpha1.BpfNode) error { // without it, the pod isn't known
		only = inventory.OnlyPlace(n, mapID, reports)
		return nil
	})
	return only
}

// reportsOf returns the reports about the object. It lists them once for all nodes.
func (p *places) reportsOf(ctx context.Context) []v1alpha1.ProgramObject {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.object) > 0 && time.Since(p.asked) > podPace {
		p.reports, _ = reportsOf(ctx, p.cluster, p.object[:1], nil) // without them, the container isn't known
		p.asked = time.Now()
	}
	return p.reports
}

// tailing prints what is sent on several nodes.
type tailing struct {
	options tailOptions
	streams genericiooptions.IOStreams
	end     func()

	mu             sync.Mutex
	nodes, awaited int // awaited of them have yet to begin
	mapName        string
	shown          int
	hints          []string // what hint has said
}

// tailedNode prints what is sent on a node.
type tailedNode struct {
	*tailing
	name string
	// only returns the only pod or container in which programs with a map are attached.
	only func(mapID uint32) inventory.Place

	of    live.Map
	place inventory.Place
	asked time.Time // when only was asked
}

// podPace is the interval after which the pod is looked up again. A new attach point is in the BpfNode after at most ten seconds.
const podPace = 10 * time.Second

func (n *tailedNode) began() bool { return n.of.ID != 0 }

// take handles a line of the inspector.
func (n *tailedNode) take(line live.TailLine) error {
	if line.Event != nil && time.Since(n.asked) > podPace {
		n.place = n.only(n.of.ID)
		n.asked = time.Now()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.options.limit > 0 && n.shown == n.options.limit:
		return nil // until the inspectors have ended
	case line.Map != nil:
		return n.begin(*line.Map)
	case line.Event != nil:
		return n.event(*line.Event)
	case line.Overwritten > 0:
		if n.options.format == "" {
			return n.line(fmt.Sprintf("%s: %d bytes of events are missing: they were overwritten before they could be read", n.name, line.Overwritten))
		}
		return n.object(tailed{Overwritten: line.Overwritten})
	case line.Neglected != nil:
		text := fmt.Sprintf("Node %s: no application reads the map. It is full of unread events (%d bytes), and the kernel refuses new ones: have an application read them.", n.name, line.Neglected.Bytes)
		if !n.options.unread {
			text += " To show them, use --unread."
		}
		return n.remark(text)
	}
	return nil
}

func (n *tailedNode) begin(m live.Map) error {
	reloaded := n.began()
	n.of, n.asked = m, time.Time{}
	if reloaded {
		return n.remark(fmt.Sprintf("Node %s: the program was reloaded. Its new map has the ID %d.", n.name, m.ID))
	}
	n.mapName = m.Name
	return n.confirm()
}

// confirm says that a node isn't awaited anymore, if it is the last one.
func (t *tailing) confirm() error {
	if t.awaited--; t.awaited > 0 || t.nodes == 0 {
		return nil
	}
	nodes := "nodes"
	if t.nodes == 1 {
		nodes = "node"
	}
	return t.remark(fmt.Sprintf("Tailing %s on %d %s. Press Ctrl-C to end.", t.mapName, t.nodes, nodes))
}

// ended handles the end of a node's events, and returns why. It doesn't wait for the others to say that.
func (n *tailedNode) ended(why error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes--
	if why == nil || n.nodes == 0 {
		return why
	}
	said := remark(n.streams.ErrOut, strings.Split(why.Error(), "\n"))
	if !n.began() {
		said = errors.Join(said, n.confirm())
	}
	return errors.Join(why, said)
}

func (n *tailedNode) event(e live.Event) error {
	if err := n.hint(e); err != nil {
		return err
	}
	n.shown++
	if n.shown == n.options.limit {
		defer n.end()
	}
	if n.options.format != "" {
		return n.object(tailed{Time: e.Time.UTC(), Namespace: n.place.Namespace, Pod: n.place.Pod, Container: n.place.Container, Type: e.Type, Length: e.Length, Value: e.Value})
	}
	words := []string{e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), n.name}
	if n.place.Pod != "" {
		words = append(words, n.place.String())
	}
	if e.Type != "" {
		words = append(words, e.Type)
	}
	return n.line(strings.Join(append(words, string(e.Value)), " "))
}

// hint says why an event is shown as hexadecimal digits. It doesn't repeat itself.
func (n *tailedNode) hint(e live.Event) error {
	if e.Type != "" {
		return nil
	}
	why := "no struct in the types (BTF) of the programs has this length. Compilers leave out structs that only local variables have."
	switch {
	case n.options.typ != "":
		why = n.options.typ + " is longer. Name another struct with --type."
	case len(e.Fits) > 0:
		why = "several structs have this length. Name one with --type: " + strings.Join(e.Fits, ", ") + "."
	}
	if slices.Contains(n.hints, why) {
		return nil
	}
	n.hints = append(n.hints, why)
	return n.remark(fmt.Sprintf("Events, such as one of %d bytes, are shown as hexadecimal digits: %s", e.Length, why))
}

func (t *tailing) remark(text string) error { return remark(t.streams.ErrOut, []string{text}) }

func (n *tailedNode) line(text string) error { return remark(n.streams.Out, []string{text}) }

func (n *tailedNode) object(t tailed) error {
	t.Node, t.Map, t.MapID = n.name, n.of.Name, n.of.ID
	return printValue(n.streams.Out, n.options.format, t)
}
