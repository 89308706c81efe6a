// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/internal/live"
)

const dumpLong = `Show the content of a map: a map of one of bpfman's objects, on each node that the object selects, or any map of a node, by its kernel ID.

Global variables are in maps that are named like their section: .bss, .data, and .rodata. They are listed by name; -o json and -o wide also show their types and offsets.

Keys and values are decoded with the map's types (BTF), including IP and MAC addresses. Without BTF, they are printed as hexadecimal digits. If a map has a value for each CPU, VALUE is the sum, and -o wide also shows the value of each CPU.

` + liveRights + ` For the maps of an object, it also requires permission to list the object's bpfprograms or bpfnsprograms.`

const dumpExample = `  # Show the counters of an object, on all nodes
  kubectl bpfman dump xdpprogram/go-xdp-counter xdp_stats_map

  # Show them every second, on one node
  kubectl bpfman dump xdpprogram/go-xdp-counter xdp_stats_map --node worker-1 --watch --interval 1s

  # Show the global variables that a program writes
  kubectl bpfman dump tracepointprogram/vfsstat .bss

  # Show a map that isn't bpfman's; kubectl bpfman programs -o json prints the IDs
  kubectl bpfman dump --node worker-1 --map-id 42`

type dumpOptions struct {
	maps     mapFlags
	limit    int
	watch    bool
	interval time.Duration
	format   *output.Flags
}

func dumpCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := dumpOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "dump (KIND/NAME [MAP] | --node NODE --map-id ID)",
		Short:             "Show the content of a map",
		Long:              dumpLong,
		Example:           dumpExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeMap(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	o.maps.addTo(command, connect)
	flags := command.Flags()
	flags.IntVar(&o.limit, "limit", 1000, "Maximum number of entries to show of each map; 0 for all.")
	flags.BoolVarP(&o.watch, "watch", "w", false, "Repeat the dump.")
	flags.DurationVar(&o.interval, "interval", 2*time.Second, "Interval of --watch.")
	o.format.AddTo(command, dumpTable.Keys()...)
	return command
}

// dumped is an entry of a map on a node.
type dumped struct {
	Node   string            `json:"node"`
	Map    string            `json:"map"`
	MapID  uint32            `json:"mapid"`
	Key    json.RawMessage   `json:"key"`
	Value  json.RawMessage   `json:"value,omitempty"`
	PerCPU []json.RawMessage `json:"percpu,omitempty"`
	// Variable is present if the entry is a global variable.
	Variable *live.Variable `json:"variable,omitempty"`
}

var dumpTable = output.Table[dumped]{
	Kind: "MapEntry",
	Columns: []output.Column[dumped]{
		{Name: "NODE", Cell: func(d dumped) any { return d.Node }},
		{Name: "KEY", Cell: func(d dumped) any { return string(d.Key) }},
		{Name: "VALUE", Cell: func(d dumped) any { return string(d.Value) }},
		{Name: "MAP ID", Wide: true, Cell: func(d dumped) any { return int64(d.MapID) }},
		{Name: "PER CPU", Wide: true, Cell: func(d dumped) any {
			return listedAll(d.PerCPU)
		}},
		{Name: "VARIABLE", Wide: true, Cell: func(d dumped) any {
			if d.Variable == nil {
				return ""
			}
			return fmt.Sprintf("%s at %d", cmp.Or(d.Variable.Type, "unknown type"), d.Variable.Offset)
		}},
	},
}

func listedAll(values []json.RawMessage) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, " ")
}

func (o dumpOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	c, err := connect()
	if err != nil {
		return err
	}
	wanted, err := o.maps.wanted(ctx, c, args)
	if err != nil {
		return err
	}
	screen := newScreen(streams.Out)
	every := o.interval
	if !o.watch {
		every = 0
	}
	rounds := inspectors.Rounds[inspectors.Dump]{Asked: len(wanted.asked), Show: func(dumps map[string]inspectors.Dump, _ map[string]error) error {
		if len(dumps) == 0 {
			return nil
		}
		if o.watch {
			if err := screen.next(); err != nil {
				return err
			}
		}
		return o.print(streams, dumps)
	}}
	return inspectors.Each(wanted.asked, func(i inspectors.Inspector) error {
		err := wanted.ask(ctx, i, func(which []string) error {
			return inspectors.AskDump(ctx, i, o.limit, every, func(d inspectors.Dump) error { return rounds.Answered(i.Node, d) }, which...)
		})
		return errors.Join(err, rounds.Ended(i.Node, err))
	})
}

// print prints the dumps of all nodes.
func (o dumpOptions) print(streams genericiooptions.IOStreams, byNode map[string]inspectors.Dump) error {
	var all []dumped
	var remarks []string
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		d := byNode[node]
		for _, e := range d.Entries {
			all = append(all, dumped{node, d.Map.Name, d.Map.ID, e.Key, e.Value, e.PerCPU, e.Variable})
		}
		switch {
		case d.End.Truncated:
			remarks = append(remarks, fmt.Sprintf("Node %s has more than %d entries: --limit 0 shows all.", node, d.End.Entries))
		case d.End.Changed:
			remarks = append(remarks, fmt.Sprintf("Node %s: the map changed while it was read; entries may be missing.", node))
		case len(d.Entries) == 0:
			remarks = append(remarks, fmt.Sprintf("Node %s: the map has no entries.", node))
		}
	}
	if err := dumpTable.Print(streams.Out, o.format, all); err != nil {
		return err
	}
	return remark(streams.ErrOut, remarks)
}
