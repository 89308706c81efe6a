// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// Reconcile executes an owner's plan, and reports the outcome. It returns the time until
// the next reconciliation if nothing failed, or 0 for none. A waitingError means that nothing
// is reported yet.
func (r *Controller) Reconcile(ctx context.Context, key program.Key) (again time.Duration, err error) {
	assigned, err := r.assigned(key)
	if undecodable := (*undecodableError)(nil); errors.As(err, &undecodable) {
		// The operator reports the problem. The object's programs stay loaded until it can
		// be decoded or is deleted.
		logr.FromContextOrDiscard(ctx).Info("Failed to decode the object; its programs stay loaded", "reason", undecodable.reason)
		return 0, nil
	}
	if err != nil || assigned.held {
		return r.later(err)
	}
	owner := assigned.owner
	if owner != nil && owner.SharesMaps() {
		r.sharers.Store(key, struct{}{})
	} else {
		r.sharers.Delete(key)
	}
	if err := r.ensureInventory(ctx); err != nil {
		return 0, r.reportUnreachable(ctx, owner, err)
	}
	existing, err := r.reports.Of(ctx, key)
	if err != nil {
		return r.later(err)
	}
	r.recall(existing)
	if existing, err = r.readUnrecorded(ctx, key, owner, existing); err != nil {
		return r.later(err)
	}
	lostPrograms, lostLinks := r.lost(existing)

	want, outcome, unsettled, err := r.runVersion(ctx, key, assigned)
	for _, touched := range r.Inventory.Touched() {
		if touched != key {
			r.queue.Add(touched)
		}
	}
	if err != nil {
		return r.later(err) // there is no plan, or the agent is stopping: don't change the reports
	}
	if owner != nil && outcome.Err() == nil {
		r.Metrics.Repaired(lostPrograms, lostLinks)
	}
	err = r.reports.Write(ctx, key, owner, want, r.Inventory.Of(key), existing, outcome)
	if unsettled == 0 && r.reports.InDoubt(key) {
		unsettled = heldUpRetry
	}
	return unsettled, logged(errors.Join(err, outcome.Err(), want.Problems()))
}

// reportUnreachable reports for an owner's programs that the daemon is unreachable.
func (r *Controller) reportUnreachable(ctx context.Context, owner *program.Owner, cause error) error {
	if owner == nil {
		return cause
	}
	existing, err := r.reports.Of(ctx, owner.Key)
	if err != nil {
		return errors.Join(cause, err)
	}
	want, err := r.plan(ctx, *owner, change{})
	if err != nil {
		return errors.Join(cause, err)
	}
	return errors.Join(cause, r.reports.WriteUnreachable(ctx, *owner, want, existing, cause))
}

// recall passes the links in reports to the inventory.
func (r *Controller) recall(existing map[string]v1alpha1.ProgramObject) {
	for _, object := range existing {
		status := object.GetStatus()
		r.Inventory.Recall(status.ProgramID, status.LoadedAt, report.LinksOf(status))
	}
}

// readUnrecorded reads the reports of programs with links that aren't recorded. Another
// agent on this node might have attached and reported them, for example during a rolling
// update.
func (r *Controller) readUnrecorded(ctx context.Context, key program.Key, owner *program.Owner, existing map[string]v1alpha1.ProgramObject) (map[string]v1alpha1.ProgramObject, error) {
	if owner == nil {
		return existing, nil
	}
	unrecorded := map[string]bool{}
	for _, p := range r.Inventory.Of(key) {
		for _, link := range p.Links {
			unrecorded[p.Function] = unrecorded[p.Function] || link == (daemon.Link{})
		}
	}
	read := false
	for _, member := range owner.Members {
		if unrecorded[member.LoadInfo().GetName()] {
			if err := r.reports.Read(ctx, key, report.Name(*owner, member.ID, r.NodeName)); err != nil {
				return nil, err
			}
			read = true
		}
	}
	if !read {
		return existing, nil
	}
	existing = r.reports.Recorded(key)
	r.recall(existing)
	return existing, nil
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
// or if ctx ends. Other errors are in the outcome.
func (r *Controller) converge(ctx context.Context, key program.Key, owner *program.Owner, c change) (plan.Plan, report.Outcome, time.Duration, error) {
	if owner == nil {
		outcome, err := r.loader.Execute(ctx, load.Pass{Key: key})
		return plan.Plan{}, outcome, 0, err
	}
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
		again, unplanned := r.plan(ctx, *owner, c)
		if unplanned != nil || !slices.ContainsFunc(found, func(a report.Attach) bool { return !again.Discovers(a.Load, a.Function, a.Link) }) {
			return want, outcome, g.Again(), unplanned
		}
		want, outcome, err = r.pass(ctx, owner, c, g)
	}
	if left := g.Waits(); err == nil && left > 0 {
		err = &waitingError{left}
	}
	if err == nil {
		r.loader.Keep(ctx, *owner, g)
	}
	return want, outcome, g.Again(), err
}

// pass makes a plan, applies policies to it, and executes its steps.
func (r *Controller) pass(ctx context.Context, owner *program.Owner, c change, g *gate.Gate) (plan.Plan, report.Outcome, error) {
	want, err := r.plan(ctx, *owner, c)
	if err != nil {
		return want, report.Outcome{}, err
	}
	judgements := g.Apply(ctx, &want, r.Inventory.Of(owner.Key))
	outcome, err := r.loader.Execute(ctx, load.Pass{Key: owner.Key, Owner: owner, Plan: want, Gate: g, Judgements: judgements, Begin: c.begin})
	return want, outcome, err
}

// heldUpRetry is the interval of checks of a report whose deletion is delayed by a
// finalizer. The agent doesn't watch reports, so it doesn't get an event.
const heldUpRetry = 10 * time.Second

// later returns when to retry a pass for which an object or an image is unavailable. If a
// kind hasn't been read, this isn't a failure of the owner, and nothing is changed, because it isn't
// known whether the object exists.
func (*Controller) later(err error) (time.Duration, error) {
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

// undecodableError is the error of reading an object that can't be decoded.
type undecodableError struct{ reason string }

func (e *undecodableError) Error() string { return "the object can't be decoded: " + e.reason }

// lost counts the programs and links that are reported, but that the daemon doesn't have
// anymore.
func (r *Controller) lost(reported map[string]v1alpha1.ProgramObject) (programs, links int) {
	counted := map[uint32]bool{0: true} // 0 means that the reported program wasn't loaded
	for _, object := range reported {
		status := object.GetStatus()
		if counted[status.ProgramID] {
			continue // members of an application can share a program
		}
		counted[status.ProgramID] = true
		gone, n := r.Inventory.Lost(status.ProgramID, status.LoadedAt, report.LinksOf(status))
		if gone {
			programs++
		}
		links += n
	}
	return programs, links
}

func (r *Controller) node() (*corev1.Node, error) {
	node, err := r.Cluster.Node(r.NodeName)
	if err != nil {
		return nil, fmt.Errorf("get own node %s: %w", r.NodeName, err)
	}
	return node, nil
}

// plan collects the facts that the owner's plan depends on, and makes the plan.
func (r *Controller) plan(ctx context.Context, owner program.Owner, c change) (plan.Plan, error) {
	facts := program.Node{Name: r.NodeName, UprobeNamespaces: r.UprobeNamespaces}
	needs := owner.Needs()
	if needs.Interfaces {
		node, err := r.node()
		switch {
		case err == nil:
			facts.Addresses = addressesOf(node)
		case c.offline:
			facts.Addresses = c.addresses
		default:
			return plan.Plan{}, err
		}
		if facts.Interfaces, err = r.Interfaces(); err != nil {
			return plan.Plan{}, err
		}
	}
	if needs.Containers {
		r.Cluster.Kinds.Open(cluster.PodKind)
		pods, err := r.Cluster.Pods(owner.Namespace)
		if err != nil {
			return plan.Plan{}, fmt.Errorf("list pods: %w", err)
		}
		facts.Containers, facts.ContainersErr = r.Containers(ctx, pods)
	}
	if needs.PodInterfaces {
		r.PodInterfaces(facts.Containers)
	}
	mapOwners, err := r.reports.MapOwners(owner)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Want(owner, facts, mapOwners), nil
}

// addressesOf returns the internal IP addresses of a node.
func addressesOf(node *corev1.Node) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}

// ensureInventory lists the daemon's programs if they aren't known. It enqueues their
// owners, which includes owners whose objects have been deleted.
func (r *Controller) ensureInventory(ctx context.Context) error {
	if r.Inventory.Known() {
		return nil
	}
	changed, err := r.Inventory.Refresh(ctx)
	if err != nil {
		return err
	}
	for _, key := range changed {
		r.queue.Add(key)
	}
	return nil
}

// compare compares the inventory with the daemon's list periodically until ctx ends, so
// that programs that were unloaded by others are loaded again. It returns an error if the
// daemon has another API, because the agent can't work with it. The agent then stops with a
// termination message for the operator. By then, the reports have the error too.
func (r *Controller) compare(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, r.Drift, false, func(ctx context.Context) (bool, error) {
		changed, err := r.Inventory.Refresh(ctx)
		if daemon.SpeaksOtherAPI(err) {
			return false, err
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Info("Failed to compare the known programs with the daemon's", "reason", err.Error())
		}
		for _, key := range changed {
			logr.FromContextOrDiscard(ctx).Info("The daemon's programs have changed outside of the agent", "owner", key.String())
			r.queue.Add(key)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}
