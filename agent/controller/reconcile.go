// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
)

// reconciler takes an owner through the parts of the agent, once: what it is assigned, its plan, the gate, and the loader. It
// leaves the reports to a reporter.
type reconciler struct {
	queue       *queue
	assignments assignments
	planner     planner
	policies    *gate.Policies
	loader      *load.Loader
	inventory   *daemon.Inventory
	reports     *record.Reports
	reporter    *reporter
	changes     *confirm.Changes
	metrics     *metrics.Metrics
	passing     interruptible
	starts      *starts
}

// reconcile executes an owner's plan, and has the outcome reported. It returns the time until
// the next reconciliation if nothing failed, or 0 for none. A waitingError means that nothing
// is reported yet.
func (r *reconciler) reconcile(ctx context.Context, key program.Key) (again time.Duration, err error) {
	waiting := r.starts.take(key)
	defer func() { waiting.undecided(err) }()
	since := r.queue.asks.take(key)
	assigned, err := r.assignments.of(ctx, key)
	assigned.since, assigned.starting = since, waiting
	if undecodable := (*undecodableError)(nil); errors.As(err, &undecodable) {
		// The operator reports the problem. The object's programs stay loaded until it can
		// be decoded or is deleted.
		logr.FromContextOrDiscard(ctx).Error(undecodable, "Its programs stay loaded")
		return 0, nil
	}
	if err != nil || assigned.held {
		return waiting.later(err)
	}
	owner := assigned.owner
	if owner == nil {
		r.planner.older.Delete(key)
		r.starts.forget(key)
	}
	r.queue.setShares(key, owner != nil && owner.SharesMaps())
	if err := r.ensureInventory(ctx); err != nil {
		return 0, r.reportUnreachable(ctx, owner, err)
	}
	existing, err := r.reports.Of(key)
	if err != nil {
		return waiting.later(err)
	}
	if err := r.recall(key, existing); err != nil {
		return 0, err
	}
	if owner != nil {
		r.readUnrecorded(ctx, *owner)
	}
	want, outcome, unsettled, err := r.runVersion(ctx, key, assigned)
	for _, touched := range r.inventory.Touched() {
		if touched != key {
			r.queue.Add(touched)
		}
	}
	if err != nil {
		return waiting.later(err) // there is no plan, or the agent is stopping: don't change the reports
	}
	if outcome.Err() == nil {
		if lost := r.inventory.TakeLost(key); owner != nil {
			r.metrics.Repaired(lost.Programs, lost.Links)
		}
	}
	actual := r.inventory.Of(key)
	waiting.decided(want, r.inventory.Of, outcome)
	r.reporter.put(key, func(ctx context.Context) error { return r.reports.Write(ctx, key, owner, want, actual, outcome) })
	return unsettled, logged(errors.Join(outcome.Err(), want.Problems()))
}

// reportUnreachable has it reported for an owner's programs that the daemon is unreachable.
func (r *reconciler) reportUnreachable(ctx context.Context, owner *program.Owner, cause error) error {
	if owner == nil {
		return cause
	}
	if _, err := r.reports.Of(owner.Key); err != nil {
		return errors.Join(cause, err)
	}
	want, err := r.planner.plan(ctx, *owner, change{})
	if err != nil {
		return errors.Join(cause, err)
	}
	r.reporter.put(owner.Key, func(ctx context.Context) error { return r.reports.WriteUnreachable(ctx, *owner, want, cause) })
	return cause
}

// recall passes the programs and links in an owner's reports to the inventory.
func (r *reconciler) recall(key program.Key, existing map[string]v1alpha1.ProgramObject) error {
	for _, object := range existing {
		status := object.GetStatus()
		r.inventory.Restore(status.ProgramID, status.LoadedAt, report.LinksOf(status))
		if err := r.inventory.Inherit(daemon.Former{Owner: key, Function: status.Function, ID: status.ProgramID}); err != nil {
			return err
		}
	}
	return nil
}

// readUnrecorded reads the reports of programs with links that aren't recorded. Another
// agent on this node might have attached and reported them, for example during a rolling
// update. What can't be read is in doubt: see [reconciler.holdUnrecorded].
func (r *reconciler) readUnrecorded(ctx context.Context, owner program.Owner) {
	names := slices.Collect(maps.Values(r.unrecorded(owner)))
	if len(names) == 0 {
		return
	}
	if err := r.reports.Read(ctx, owner.Key, names...); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to read which links of the daemon are recorded; they are left unchanged")
	}
	if err := r.recall(owner.Key, r.reports.Recorded(owner.Key)); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to record what the former daemon has attached")
	}
}

// unrecorded returns the names of the reports that could record links of which no record is known, by the members' IDs.
func (r *reconciler) unrecorded(owner program.Owner) map[string]string {
	functions := map[string]bool{}
	for _, p := range r.inventory.Of(owner.Key) {
		for _, link := range p.Links {
			functions[p.Function] = functions[p.Function] || link == (daemon.Link{})
		}
	}
	names := map[string]string{}
	for _, member := range owner.Members {
		if functions[member.LoadInfo().GetName()] {
			names[member.ID] = r.reports.Name(owner, member.ID)
		}
	}
	return names
}

// holdUnrecorded returns the plan that leaves unrecorded links unchanged while the reports that could record them are in doubt:
// one of them can be the link of an attach point. Everything else of the plan is executed.
func (r *reconciler) holdUnrecorded(owner program.Owner, want plan.Plan) plan.Plan {
	unrecorded, doubted := r.unrecorded(owner), r.reports.InDoubt(owner.Key)
	return want.WithHeld(func(member program.Member) bool { return slices.Contains(doubted, unrecorded[member.ID]) })
}

// logged shortens an error for the log, to which each retry writes it. The log of the
// kernel's verifier can have a megabyte. The daemon's log contains the full error.
func logged(err error) error {
	const most = 4096
	if err == nil {
		return nil
	}
	return errors.New(shorten.Middle(err.Error(), most))
}

// passes is the maximum number of passes with a new plan each, if interfaces that a plan
// discovered disappear before they are attached.
const passes = 3

// converge plans and executes the steps for an owner. It returns the time until the next
// reconciliation if nothing failed, or 0 for none. It returns an error if there is no plan,
// or if ctx ends. Other errors are in the outcome. The starts that wait are answered with the
// plan that is executed, even if the reports are about another one, or have to wait.
func (r *reconciler) converge(ctx context.Context, key program.Key, owner *program.Owner, c change) (plan.Plan, report.Outcome, time.Duration, error) {
	if owner == nil {
		outcome, err := r.loader.Execute(ctx, load.Pass{Key: key})
		return plan.Plan{}, outcome, 0, err
	}
	c.earlier.Running = func() *policy.Subject { return r.running(key, owner) }
	g, err := r.policies.For(ctx, owner, c.earlier)
	if err != nil {
		return plan.Plan{}, report.Outcome{}, 0, err
	}
	want, outcome, err := r.pass(ctx, owner, c, g)
	for pass := 1; err == nil && pass < passes; pass++ {
		found := outcome.FailedDiscovered(want)
		if len(found) == 0 {
			break
		}
		c.since = nil // an interface that it found has disappeared
		again, unplanned := r.planner.plan(ctx, *owner, c)
		if unplanned != nil || !slices.ContainsFunc(found, func(a report.Attach) bool { return !again.Discovers(a.Load, a.Function, a.Link) }) {
			c.starting.decided(want, r.inventory.Of, outcome)
			return want, outcome, g.Again(), unplanned
		}
		want, outcome, err = r.pass(ctx, owner, c, g)
	}
	if err != nil {
		return want, outcome, g.Again(), err
	}
	c.starting.decided(want, r.inventory.Of, outcome)
	if left := g.Waits(); left > 0 {
		return want, outcome, g.Again(), &waitingError{left}
	}
	r.loader.Keep(ctx, *owner, g)
	return want, outcome, g.Again(), nil
}

// running returns what policies see of the version of an object that is recorded to run on this node, or nil if there is none.
func (r *reconciler) running(key program.Key, owner *program.Owner) *policy.Subject {
	version := r.changes.Confirmed(key, owner.UID)
	if version == nil {
		return nil
	}
	object, err := version.UserObject()
	if err != nil {
		return nil // it was stored by another version of bpfman
	}
	subject := policy.SubjectOf(key.Kind, object)
	subject.NodeLabels = owner.Subject.NodeLabels
	return &subject
}

// pass makes a plan, applies policies to it, and executes its steps.
func (r *reconciler) pass(ctx context.Context, owner *program.Owner, c change, g *gate.Gate) (plan.Plan, report.Outcome, error) {
	want, err := r.planner.plan(ctx, *owner, c)
	if err != nil {
		return want, report.Outcome{}, err
	}
	return r.execute(ctx, owner, r.holdUnrecorded(*owner, want), c, g)
}

// execute executes the steps of the plan that policies allow of another one. It returns that plan.
func (r *reconciler) execute(ctx context.Context, owner *program.Owner, want plan.Plan, c change, g *gate.Gate) (plan.Plan, report.Outcome, error) {
	allowed, judgements := g.Apply(ctx, want, r.inventory.Of(owner.Key))
	outcome, err := r.loader.Execute(ctx, load.Pass{Key: owner.Key, Owner: owner, Plan: allowed, Gate: g, Judgements: judgements, Begin: c.begin})
	return allowed, outcome, err
}

// heldUpRetry is the interval of checks of a report whose deletion is delayed by a
// finalizer. The agent doesn't watch reports, so it doesn't get an event.
const heldUpRetry = 10 * time.Second

// later returns when to retry a pass for which an object or an image is unavailable. If a
// kind hasn't been read, this isn't a failure of the owner, and nothing is changed, because it isn't
// known whether the object exists.
func later(err error) (time.Duration, error) {
	unread := (*kinds.UnreadError)(nil)
	if !errors.As(err, &unread) {
		return 0, err
	}
	retry := firstRetry
	if unread.Err != nil {
		retry = gate.UnreadRetry
	}
	return retry, nil
}

// isAttached reports whether the daemon has all wanted programs and links of an object on this node, except those that were undone.
func (r *reconciler) isAttached(ctx context.Context, key program.Key) bool {
	a, err := r.assignments.of(ctx, key)
	if err != nil || a.held || a.owner == nil {
		return err == nil && !a.held
	}
	var c change
	if rollback := r.changes.Rollback(key, a.version); rollback != nil && rollback.Rest {
		c.confined = undone(rollback)
	}
	want, err := r.planner.plan(ctx, *a.owner, c)
	return err == nil && want.Problems() == nil && !slices.ContainsFunc(want.Diff(r.inventory.Of(key)), func(s plan.Step) bool { return !report.IsUndone(s.Point.Lack) })
}

// ensureInventory lists the daemon's programs if they aren't known. It enqueues their
// owners, which includes owners whose objects have been deleted.
func (r *reconciler) ensureInventory(ctx context.Context) error {
	if r.inventory.Known() {
		return nil
	}
	changed, err := r.inventory.Refresh(ctx)
	if err != nil {
		return err
	}
	for _, key := range changed {
		r.queue.Add(key)
	}
	return nil
}
