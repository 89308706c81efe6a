// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inspect keeps the BpfNode of this node up to date. Every few seconds, it
// compares the eBPF in the kernel with the known state, reads what is new, and publishes
// changes.
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

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/inspector/publish"
	"github.com/bpfman/bpfman-operator/inspector/report"
	"github.com/bpfman/bpfman-operator/inspector/runtimes"
	"github.com/bpfman/bpfman-operator/internal/printable"
)

// Options are the options of an Inspector.
type Options struct {
	// NodeName is the name of this node, and of its BpfNode.
	NodeName string
	// DaemonSocket is the path of the bpfman daemon's socket.
	DaemonSocket string
	// HostProc and HostRun are the paths where the host's /proc and /run are mounted.
	HostProc, HostRun string
	// API is the configuration of the API server.
	API *rest.Config
	// Conflicts, unless nil, finds the conflicts of a node, and returns a condition for
	// each type of conflict. Calls are sequential, and precede OnSnapshot. Conflicts
	// must not change the status. Messages and names in the status are already escaped.
	// Conditions need no times, because publishing sets them.
	Conflicts func(context.Context, *v1alpha1.BpfNodeStatus) ([]v1alpha1.BpfNodeConflict, []metav1.Condition)
	// OnSnapshot, unless nil, is called with the whole status, including conflicts,
	// after each round that found a change. Calls are sequential. Nothing changes the
	// status afterwards, and OnSnapshot must not change it. The BpfNode gets a copy with
	// a limited size.
	OnSnapshot func(*v1alpha1.BpfNodeStatus)
	// Runs returns how often a program ran, and the total time. It is nil if the kernel's
	// statistics aren't enabled.
	Runs func(program uint32) (count uint64, total time.Duration, err error)
	Log  *slog.Logger
}

// How often to inspect the node.
const (
	// pace is the interval between comparisons of ids. Together with the publisher's
	// pace, changes are written within ten seconds if there was no write just before.
	pace = 3 * time.Second
	// everything is the interval at which to read everything again, because some changes
	// of attachments and holders have no other sign.
	everything = time.Minute
)

// Inspector inspects this node.
type Inspector struct {
	options   Options
	inventory *inventory.Inventory
	daemon    *daemon.Daemon
	owners    owners
	names     names
	averages  runtimes.Averages
	publisher *publish.Publisher

	last           map[uint32][]v1alpha1.BpfNodeHolder
	status         *v1alpha1.BpfNodeStatus
	networkChanged atomic.Bool
	looked         atomic.Bool
}

// New returns an inspector that hasn't inspected the node yet.
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
		owners: owners{ask: connection.Ask}, names: names{run: options.HostRun},
		averages: runtimes.Averages{Runs: options.Runs},
	}, nil
}

// Close closes the connection to the daemon.
func (i *Inspector) Close() error { return i.daemon.Close() }

// Ready returns nil after the first inspection of the node.
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
			i.options.Log.Error("Failed to watch the network; changes are detected late", "error", err)
		}
		return nil
	})
	tasks.Go(func() error { return i.look(ctx) })
	return tasks.Wait()
}

// recallTimeout bounds how long the start waits for the API server.
const recallTimeout = 10 * time.Second

// recall restores the last holders of programs, and their run times, from the BpfNode that was
// written before a restart, unless the node has booted since. The kernel doesn't have this
// information.
func (i *Inspector) recall(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	before, err := i.publisher.Read(ctx)
	if err != nil {
		i.options.Log.Error("Failed to read the BpfNode that was written before", "error", err)
		return
	}
	if before != nil && before.BootID == i.inventory.Facts().BootID {
		i.last = report.Processes(before)
		i.averages.Recall(before)
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
		i.once(ctx, inventory.Scope{Network: i.networkChanged.Swap(false), All: due}, now)
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// once inspects the node, and publishes changes.
func (i *Inspector) once(ctx context.Context, scope inventory.Scope, now time.Time) {
	failures := map[string]error{}
	updated, err := i.inventory.Update(scope, now)
	if err != nil {
		failures["kernel"] = err
	}
	facts := i.inventory.Facts()
	if updated || i.status == nil {
		i.owners.want(ctx, facts.Programs)
		i.names.want(ctx, facts, scope.All)
	}
	changed, measured := i.owners.changed(), i.averages.Measure()
	updated = updated || changed || measured
	if !updated && err == nil && i.status != nil {
		return
	}
	maps.Copy(failures, i.inventory.Failures())
	answer, err := i.owners.known()
	facts.Daemon, facts.Owners = answer.Name, answer.Owners
	failures["bpfman daemon"] = err
	facts.Names, failures["pods"] = i.names.answer, i.names.err
	facts.Last = i.last
	status := report.Status(facts)
	i.averages.Add(status, now)
	i.last = report.Processes(status)
	status.Conditions = []metav1.Condition{inspected(failures)}
	if i.options.Conflicts != nil {
		conflicts, conditions := i.options.Conflicts(ctx, status)
		status.Conflicts, status.ConflictCount = conflicts, int32(len(conflicts)) //nolint:gosec // there are few
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

// maxMessage is the maximum length of a condition's message, and between is between the parts of it.
const (
	maxMessage = 2048
	between    = "; "
)

// inspected returns the condition Inspected, which says what couldn't be read.
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
	for i, text := range told { // each has its share: containers can make some of them long
		told[i] = shorten.Middle(printable.Text(strings.ReplaceAll(text, "\n", "; ")), maxMessage/len(told)-len(between))
	}
	message := strings.Join(told, between)
	return metav1.Condition{Type: v1alpha1.BpfNodeInspected, Status: metav1.ConditionFalse, Reason: reasonPartial, Message: message}
}
