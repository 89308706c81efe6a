// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// change is a version of an owner for a pass.
type change struct {
	// begin is called before a network program is attached on the node. If it fails, nothing is attached.
	begin func() error
	// earlier is what is known of an earlier version that runs again.
	earlier gate.Earlier
	// offline means that objects of the API server may be unknown. The node's addresses are these then.
	offline   bool
	addresses []netip.Addr
}

// runVersion runs the owner's version, or the previous one if it was rolled back on this node. It is converge with a
// [confirm.Changes].
func (r *reconciler) runVersion(ctx context.Context, key program.Key, a assignment) (plan.Plan, report.Outcome, time.Duration, error) {
	owner, version := a.owner, a.version
	if !r.changes.Enabled() {
		return r.converge(ctx, key, owner, change{})
	}
	r.undoing.RLock()
	defer r.undoing.RUnlock()
	if owner == nil {
		want, outcome, again, err := r.converge(ctx, key, nil, change{})
		if err == nil && outcome.Err() == nil {
			unrecorded(ctx, r.changes.Forget(key))
		}
		return want, outcome, again, err
	}
	if rollback := r.changes.Rollback(key, version); rollback != nil {
		return r.runPrevious(ctx, key, owner, rollback)
	}
	c := change{begin: func() error { return r.changes.Begin(key, version) }}
	if a.previous {
		c.earlier.Image = r.changes.Image(key, version)
	}
	want, outcome, again, err := r.converge(ctx, key, owner, c)
	if err != nil {
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
	complete := outcome.Err() == nil && want.Problems() == nil && len(want.Blocked) == 0
	unrecorded(ctx, r.changes.End(key, version, confirm.Pass{Attached: want.AttachedOnNode(actual), Complete: complete, Record: a.governed}))
	if a.governed && complete && r.changes.Trying(key, version) {
		err = &waitingError{r.changes.Limit}
	}
	return want, outcome, again, err
}

// unrecorded logs that a record couldn't be written, for example because the disk is full. The record in memory is right,
// and the reports must not wait for the disk.
func unrecorded(ctx context.Context, err error) {
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to record a change; after a crash, it is confirmed again")
	}
}

// runPrevious runs the previous version of an owner, or nothing. The returned plan is what the reports say about the
// version that was rolled back.
func (r *reconciler) runPrevious(ctx context.Context, key program.Key, owner *program.Owner, rollback *confirm.Rollback) (plan.Plan, report.Outcome, time.Duration, error) {
	previous, err := ownerOf(rollback.Previous)
	if err != nil {
		return plan.Plan{}, report.Outcome{}, 0, err
	}
	var c change
	if rollback.Previous != nil {
		c.earlier = gate.Earlier{Image: rollback.Previous.Image, Allowed: true}
	}
	_, outcome, again, err := r.converge(ctx, key, previous, c)
	message := rollback.Message
	if failed := outcome.Err(); failed != nil {
		message += ", which failed: " + failed.Error()
	}
	said := plan.Plan{UID: owner.UID}
	for _, member := range owner.Members {
		said.Blocked = append(said.Blocked, plan.Blocked{Member: member, Condition: v1alpha1.BpfProgCondRolledBack, Message: message})
	}
	return said, outcome, again, err
}

func ownerOf(version *confirm.Version) (*program.Owner, error) {
	if version == nil {
		return nil, nil
	}
	return version.Owner()
}

// undo runs the previous version of an owner, or nothing if that is nil or fails. It doesn't need the API server, and
// policies allowed the previous version when it was confirmed.
func (r *reconciler) undo(ctx context.Context, key program.Key, version *confirm.Version) error {
	r.undoing.Lock()
	defer r.undoing.Unlock()
	if err := r.ensureInventory(ctx); err != nil {
		return err
	}
	previous, err := ownerOf(version)
	if err == nil && previous != nil {
		var outcome report.Outcome
		_, outcome, err = r.pass(ctx, previous, change{offline: true, addresses: version.Addresses}, r.policies.Offline(previous, version.Image))
		err = errors.Join(err, outcome.Err())
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to run the previous version; unloading", "owner", key.String())
	}
	if err != nil || previous == nil {
		outcome, err := r.loader.Execute(ctx, load.Pass{Key: key})
		return errors.Join(err, outcome.Err())
	}
	return nil
}
