// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inspect keeps the BpfNode of this node true: it compares the kernel's eBPF
// with what is known every few seconds, resolves what is new, and has what has changed
// written.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/inspector/pods"
	"github.com/bpfman/bpfman-operator/inspector/publish"
	"github.com/bpfman/bpfman-operator/inspector/report"
)

// Options are what an Inspector needs.
type Options struct {
	// NodeName is the name of this node, and of its BpfNode.
	NodeName string
	// DaemonSocket is the bpfman daemon's.
	DaemonSocket string
	// HostProc and HostRun are where the host's /proc and /run are seen.
	HostProc, HostRun string
	// API leads to the API server.
	API *rest.Config
	// Conflicts, unless nil, finds the conflicts of a node, and a condition for
	// each type of conflict. It is called in turn, before OnSnapshot, with the
	// whole status, which it must not change. Messages and names in the status are
	// escaped already. Conditions need no times: they get them when they are written.
	Conflicts func(context.Context, *v1alpha1.BpfNodeStatus) ([]v1alpha1.BpfNodeConflict, []metav1.Condition)
	// OnSnapshot, unless nil, is called in turn with the whole status, conflicts
	// included, after each look that found something changed. The status is not
	// changed any more, and must not be: what is written is a bounded copy of it.
	OnSnapshot func(*v1alpha1.BpfNodeStatus)
	Log        *slog.Logger
}

// How often the node is looked at.
const (
	// pace is between two comparisons of ids: what comes or goes is written within
	// ten seconds if nothing was written just before.
	pace = 3 * time.Second
	// everything is between two times that all is read again: some changes of what is
	// attached and held are told by nothing.
	everything = time.Minute
)

// Inspector is this node's.
type Inspector struct {
	options   Options
	inventory *inventory.Inventory
	daemon    *daemon.Daemon
	owners    owners
	names     names
	publisher *publish.Publisher

	last           map[uint32][]v1alpha1.BpfNodeHolder
	status         *v1alpha1.BpfNodeStatus
	networkChanged atomic.Bool
	looked         atomic.Bool
}

// New returns an inspector that hasn't looked yet.
func New(options Options) (*Inspector, error) {
	found, err := inventory.New(options.HostProc)
	if err != nil {
		return nil, err
	}
	publisher, err := publish.New(options.API, options.NodeName, publish.DefaultPace, options.Log)
	if err != nil {
		return nil, err
	}
	connection, err := daemon.New(options.DaemonSocket)
	if err != nil {
		return nil, err
	}
	return &Inspector{
		options: options, inventory: found, daemon: connection, publisher: publisher,
		owners: owners{ask: connection.Owners}, names: names{runtime: pods.Runtime{Run: options.HostRun}},
	}, nil
}

// Close ends the connections.
func (i *Inspector) Close() error { return i.daemon.Close() }

// Ready is nil once the node has been looked at.
func (i *Inspector) Ready() error {
	if i.looked.Load() {
		return nil
	}
	return errors.New("the node hasn't been inspected yet")
}

// Run inspects the node until the context ends.
func (i *Inspector) Run(ctx context.Context) error {
	i.recall(ctx)
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return i.publisher.Run(ctx) })
	tasks.Go(func() error {
		if err := network.Watch(ctx, func() { i.networkChanged.Store(true) }); err != nil {
			i.options.Log.Error("Failed to watch the network; changes are noticed late", "error", err)
		}
		return nil
	})
	tasks.Go(func() error { return i.look(ctx) })
	return tasks.Wait() //nolint:wrapcheck // of the tasks above
}

// recallTimeout is how long the start may wait for the API server.
const recallTimeout = 10 * time.Second

// recall takes up who held programs last from what was written before a restart, if
// the node hasn't booted since: the kernel doesn't know it.
func (i *Inspector) recall(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	before, err := i.publisher.Read(ctx)
	if err != nil {
		i.options.Log.Error("Failed to read who held programs before", "error", err)
		return
	}
	if before != nil && before.BootID == i.inventory.Facts().BootID {
		i.last = report.Processes(before)
	}
}

func (i *Inspector) look(ctx context.Context) error {
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	var all time.Time
	for {
		now := time.Now()
		due := now.Sub(all) >= everything
		if due {
			all = now
		}
		i.once(ctx, inventory.Look{Network: i.networkChanged.Swap(false), All: due}, now)
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// once looks at the node, and publishes what has changed.
func (i *Inspector) once(ctx context.Context, look inventory.Look, now time.Time) {
	failures := map[string]error{}
	updated, err := i.inventory.Update(look, now)
	if err != nil {
		failures["kernel"] = err
	}
	facts := i.inventory.Facts()
	if updated || i.status == nil {
		i.owners.want(ctx, facts.Programs)
		i.names.want(ctx, facts, look.All)
	}
	if i.owners.changed() {
		updated = true
	}
	if !updated && err == nil && i.status != nil {
		return
	}
	maps.Copy(failures, i.inventory.Failures())
	facts.Owners, err = i.owners.known()
	failures["bpfman daemon"] = err
	facts.Names, err = i.names.known()
	failures["pods"] = err
	facts.Last = i.last
	status := report.Status(facts)
	i.last = report.Processes(status)
	status.Conditions = []metav1.Condition{inspected(failures)}
	if i.options.Conflicts != nil {
		conflicts, conditions := i.options.Conflicts(ctx, status)
		status.Conflicts, status.ConflictCount = conflicts, int32(len(conflicts)) //nolint:gosec // few
		status.Conditions = append(status.Conditions, conditions...)
	}
	i.looked.Store(true)
	if i.status != nil && reflect.DeepEqual(status, i.status) {
		return
	}
	i.status = status
	if i.options.OnSnapshot != nil {
		i.options.OnSnapshot(status)
	}
	i.publisher.Publish(report.Bound(status, report.Limit))
}

// Reasons of the condition Inspected.
const (
	reasonComplete = "Complete"
	reasonPartial  = "Partial"
)

// maxMessage bounds what one condition says.
const maxMessage = 2048

// inspected says what couldn't be seen.
func inspected(failures map[string]error) metav1.Condition {
	var told []string
	for what, err := range failures {
		if err != nil {
			told = append(told, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if len(told) == 0 {
		return metav1.Condition{Type: v1alpha1.BpfNodeInspected, Status: metav1.ConditionTrue, Reason: reasonComplete, Message: "All programs, maps, and links were read."}
	}
	slices.Sort(told)
	message := report.Text(strings.ReplaceAll(strings.Join(told, "; "), "\n", "; "))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	return metav1.Condition{Type: v1alpha1.BpfNodeInspected, Status: metav1.ConditionFalse, Reason: reasonPartial, Message: message}
}
