// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/interrupt"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// change is a version of an owner for a pass.
type change struct {
	// begin is called before a network program is attached on the node. If it fails, nothing is attached.
	begin func(...program.Place) error
	// confined, if not nil, says where network programs are attached on the node.
	confined *confined
	// earlier is what is known of an earlier version that runs again.
	earlier gate.Earlier
	// offline means that objects of the API server may be unknown. The node's addresses are these then.
	offline   bool
	addresses []netip.Addr
	// rest, if not nil, is what stays while offline, because only the rest of the version is undone.
	rest *kept
	// since is what the events about the owner ask of the node's state. Nil has it read again.
	since *since
	// starting are the starts that wait for the pass. It can be nil.
	starting *pass
}

// kept is what stays of a version of which the rest is undone.
type kept struct {
	// loaded are the owner's programs. Nothing more is loaded.
	loaded []daemon.Program
	// at is where links on the node stay if it isn't known whether they are wanted, because pods can have the network of the
	// node. At the same places, links of another version can be what cuts off the node.
	at []program.Place
}

// confined has a version attached only where it was confirmed.
type confined struct {
	to []program.Place
	// instead is the reason why it isn't attached elsewhere.
	instead error
}

// errUnconfirmed is the reason for a version that runs again. Its own reports said before why it wasn't attached there.
var errUnconfirmed = errors.New("the version wasn't confirmed there")

// again returns the change that runs a version again which was confirmed before.
func again(version *confirm.Version) change {
	c := change{earlier: gate.Earlier{Image: version.Image, Allowed: true}, addresses: version.Addresses}
	if version.Confined() {
		c.confined = &confined{version.Places, errUnconfirmed}
	}
	return c
}

// forgive removes the errors about where a version that runs again wasn't attached before either.
func forgive(outcome *report.Outcome) {
	maps.DeleteFunc(outcome.Attaches, func(_ report.Attach, err error) bool { return errors.Is(err, errUnconfirmed) })
}

// interruptible are the passes over all owners. A rollback interrupts them between two calls of the daemon, and waits for
// none of them. The zero value is ready to use.
type interruptible struct {
	mu      sync.Mutex
	last    int
	running map[int]context.CancelCauseFunc
	// over is closed when the rollback in progress ends. It is nil if there is none.
	over chan struct{}
}

// errRollback is the reason for an interruption.
var errRollback = errors.New("a change is rolled back")

// enter returns the context of a pass, and a function that ends it. It waits while a change is rolled back.
func (p *interruptible) enter(ctx context.Context) (context.Context, func(), error) {
	for {
		p.mu.Lock()
		over := p.over
		if over == nil {
			defer p.mu.Unlock()
			if p.running == nil {
				p.running = map[int]context.CancelCauseFunc{}
			}
			p.last++
			id := p.last
			pass, stop := interrupt.With(ctx)
			p.running[id] = stop
			return pass, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.running, id)
				stop(nil)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx, nil, fmt.Errorf("wait for a rollback: %w", context.Cause(ctx))
		}
	}
}

// interrupt ends all passes, and prevents others until the returned function is called.
func (p *interruptible) interrupt() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := make(chan struct{})
	p.over = over
	for _, stop := range p.running {
		stop(errRollback)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = nil
		close(over)
	}
}

// runVersion runs the owner's version, or the previous one if it was rolled back on this node. It starts again if a rollback
// interrupts it.
func (r *reconciler) runVersion(ctx context.Context, key program.Key, a assignment) (plan.Plan, report.Outcome, time.Duration, error) {
	for {
		pass, end, err := r.passing.enter(ctx)
		if err != nil {
			return plan.Plan{}, report.Outcome{}, 0, err
		}
		want, outcome, again, err := r.runOnce(pass, key, a)
		interrupted := errors.Is(context.Cause(pass), errRollback)
		end()
		if !interrupted {
			return want, outcome, again, err
		}
	}
}

// runOnce is converge with a [confirm.Changes].
func (r *reconciler) runOnce(ctx context.Context, key program.Key, a assignment) (plan.Plan, report.Outcome, time.Duration, error) {
	owner, version := a.owner, a.version
	if owner == nil {
		want, outcome, again, err := r.converge(ctx, key, nil, change{})
		if err == nil && outcome.Err() == nil {
			unrecorded(ctx, r.changes.Forget(key))
		}
		return want, outcome, again, err
	}
	c := change{
		begin: func(at ...program.Place) error { return r.changes.Begin(key, version, at...) },
		since: a.since, starting: a.starting,
	}
	if rollback := r.changes.Rollback(key, version); rollback != nil {
		if !rollback.Rest {
			return r.runPrevious(ctx, key, a, rollback)
		}
		c.confined = undone(rollback)
	}
	if a.previous {
		c.earlier.Image = r.changes.Image(key, version)
	}
	before := r.inventory.Of(key)
	want, outcome, again, err := r.converge(ctx, key, owner, c)
	if err != nil {
		r.changes.Interrupted(key, version, r.added(key, before))
		return want, outcome, again, err
	}
	if node, err := r.planner.cluster.OwnNode(); err == nil {
		version.Addresses = addressesOf(node)
	}
	actual := r.inventory.Of(key)
	for _, p := range actual {
		if p.Image.Digest != "" {
			version.Image = p.Image
		}
	}
	places, leaves := want.AttachedOnNode(actual), want.Leaves(actual)
	result := confirm.Pass{
		Attached: len(places) > 0, Added: r.added(key, before),
		Complete: c.confined == nil && outcome.Err() == nil && want.Problems() == nil && len(want.Blocked) == 0 && !leaves, Record: a.governed,
	}
	if want.Alone(actual) {
		result.Places, result.Replaced = places, want.Problems() == nil && len(outcome.Removals) == 0 && !leaves
	}
	unrecorded(ctx, r.changes.End(key, version, result))
	if a.governed && result.Complete && r.changes.Trying(key, version) {
		err = &waitingError{r.changes.Limit}
	}
	return want, outcome, again, err
}

// undone has a version attached only where it was confirmed, because the rest of it was undone.
func undone(rollback *confirm.Rollback) *confined {
	return &confined{rollback.Previous.Places, &report.UndoneError{Message: rollback.Message}}
}

// added reports whether an owner's programs may have links that they didn't have before.
func (r *reconciler) added(key program.Key, before []daemon.Program) bool {
	if !r.inventory.Known() {
		return true
	}
	known := map[uint32]bool{}
	for _, p := range before {
		for link := range p.Links {
			known[link] = true
		}
	}
	for _, p := range r.inventory.Of(key) {
		for link := range p.Links {
			if !known[link] {
				return true
			}
		}
	}
	return false
}

// unrecorded logs that a record couldn't be written, for example because the disk is full. The record in memory is right,
// and the reports must not wait for the disk.
func unrecorded(ctx context.Context, err error) {
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to record a change; retrying. After a crash until then, it is confirmed again")
	}
}

// runPrevious runs the previous version of an owner, or nothing. The returned plan is what the reports say about the
// version that was rolled back.
func (r *reconciler) runPrevious(ctx context.Context, key program.Key, a assignment, rollback *confirm.Rollback) (plan.Plan, report.Outcome, time.Duration, error) {
	previous, err := ownerOf(rollback.Previous)
	if err != nil {
		return plan.Plan{}, report.Outcome{}, 0, err
	}
	var c change
	if previous != nil {
		c = again(rollback.Previous)
		previous.Subject.NodeLabels = a.owner.Subject.NodeLabels
	}
	c.since, c.starting = a.since, a.starting
	_, outcome, retry, err := r.converge(ctx, key, previous, c)
	forgive(&outcome)
	message := rollback.Message
	if failed := outcome.Err(); failed != nil {
		message += ", which failed: " + failed.Error()
	}
	return plan.AllBlocked(*a.owner, v1alpha1.BpfProgCondRolledBack, &report.UndoneError{Message: message}), outcome, retry, err
}

func ownerOf(version *confirm.Version) (*program.Owner, error) {
	if version == nil {
		return nil, nil
	}
	return version.Owner()
}

// fewSteps is the maximum number of calls of the daemon for which a rollback takes the usual order: the previous version is
// attached before the programs of the one that is rolled back are removed. With more, the node would be cut off too long.
const fewSteps = 32

// undo runs the previous versions of owners, or nothing where that is nil or fails. It needs the daemon and the node's disk,
// and nothing else. Policies allowed the previous versions when they were confirmed.
func (r *reconciler) undo(ctx context.Context, versions map[program.Key]*confirm.Version) map[program.Key]error {
	defer r.passing.interrupt()()
	failed := map[program.Key]error{}
	// The call in progress ends before the programs are compared.
	err := r.inventory.Exclusively(ctx, func() error { return nil })
	if err == nil {
		err = r.ensureInventory(ctx)
	}
	if err != nil {
		for key := range versions {
			failed[key] = err
		}
		return failed
	}
	all, steps := map[program.Key]former{}, 0
	for key, version := range versions {
		f := r.formerOf(ctx, key, version)
		for _, step := range f.want.Diff(r.inventory.Of(key)) {
			if step.Op != plan.OpAttach || step.Point.Lack == nil {
				steps++
			}
		}
		all[key] = f
	}
	if steps > fewSteps {
		for key, f := range all {
			if err := r.loader.Withdraw(ctx, key, f.want); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Failed to remove programs", "object", key.String())
			}
		}
	}
	for key, f := range all {
		failed[key] = r.restore(ctx, key, f)
	}
	return failed
}

// former is the version of an owner that a rollback runs, where it was confirmed. Its plan is made before anything is removed.
type former struct {
	owner *program.Owner // nil if nothing runs
	image bytecode.Image
	want  plan.Plan
	// part means that only a part of the version was confirmed, and rest that the rest of it is undone.
	part, rest bool
}

// formerOf returns what a rollback runs of a version. Without a plan, it can't run, and nothing does.
func (r *reconciler) formerOf(ctx context.Context, key program.Key, version *confirm.Version) former {
	if version == nil {
		return former{}
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("object", key.String())
	owner, err := version.Owner()
	if err != nil {
		log.Error(err, "Failed to read the previous version; unloading")
		return former{}
	}
	c := again(version)
	c.offline = true
	if rollback := r.changes.Rollback(key, *version); rollback != nil && rollback.Rest {
		c.rest = &kept{r.inventory.Of(key), version.Places}
	}
	want, err := r.planner.plan(ctx, *owner, c)
	if err != nil {
		log.Error(err, "Failed to plan the previous version; unloading")
		return former{}
	}
	return former{owner, version.Image, want, version.Confined(), c.rest != nil}
}

// restore runs the previous version of an owner, or nothing.
func (r *reconciler) restore(ctx context.Context, key program.Key, f former) error {
	if f.owner != nil {
		err := r.runAgain(ctx, f)
		if err != nil && f.part && r.ensureInventory(ctx) == nil {
			err = r.runAgain(ctx, f) // one failed call doesn't end what stayed attached until now
		}
		if err == nil {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to run the previous version; unloading", "object", key.String())
	}
	outcome, err := r.loader.Execute(ctx, load.Pass{Key: key})
	return errors.Join(err, outcome.Err())
}

// runAgain runs a version that was confirmed before. What of it can't be attached is left to the next pass: it may not have been
// attached before either, and the node isn't cut off by it. The same applies to a program of which the rest was undone by unloading it.
func (r *reconciler) runAgain(ctx context.Context, f former) error {
	_, outcome, err := r.execute(ctx, f.owner, f.want, change{}, r.policies.Offline(f.owner, f.image))
	forgive(&outcome)
	failed := outcome.Err()
	if err != nil || len(outcome.Removals) > 0 || len(outcome.Loads) > 0 && !f.rest {
		return errors.Join(err, failed)
	}
	if failed != nil {
		logr.FromContextOrDiscard(ctx).Error(failed, "Failed to attach a part of the previous version", "object", f.owner.String())
	}
	return nil
}
