// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
)

// execute executes the steps from the daemon's current programs to the plan. If a step
// fails, only the steps that depend on it are skipped. It returns an error only if ctx
// ends. Other errors are in the outcome.
func (r *Controller) execute(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, g *gate.Gate, judgements map[int]report.Judgement, begin func() error) (report.Outcome, error) {
	outcome := report.Outcome{Loads: map[int]error{}, Attaches: map[report.Attach]error{}, Judgements: judgements}
	for _, step := range want.Diff(r.Inventory.Of(key)) {
		r.take(ctx, key, owner, want, step, g, begin, &outcome)
		if ctx.Err() != nil {
			return outcome, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
	}
	return outcome, nil
}

// take executes one step, and stores its error in the outcome.
func (r *Controller) take(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, step plan.Step, g *gate.Gate, begin func() error, outcome *report.Outcome) {
	switch step.Op {
	case plan.OpLoad:
		judgement, err := r.load(ctx, *owner, want, step.Load, g)
		outcome.Judgements[step.Load] = judgement
		if err != nil {
			outcome.Loads[step.Load] = err
		}
	case plan.OpAttach:
		loaded, there := want.Present(step.Load, r.Inventory.Of(key))[step.Function]
		if !there || want.Evicted[loaded.ID] {
			return // its Load failed, which is reported
		}
		if err := r.attach(ctx, loaded.ID, step.Point, begin); err != nil {
			outcome.Attaches[report.Attach{Load: step.Load, Function: step.Function, Link: plan.LinkOf(step.Point)}] = err
		}
	case plan.OpDetach:
		if err := r.Inventory.Detach(ctx, step.ProgramID, step.LinkID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	case plan.OpUnload:
		if step.Replaced && len(outcome.Loads) > 0 {
			return // it stays until its successor is loaded
		}
		if err := r.Inventory.Unload(ctx, step.ProgramID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	}
}

// attach attaches a program to an attach point, unless that is missing. A missing one
// isn't left to the daemon, which might find it a moment before the agent does: the
// link would have the digest of a missing attach point.
func (r *Controller) attach(ctx context.Context, id uint32, point program.AttachPoint, begin func() error) error {
	if point.Lack != nil {
		return fmt.Errorf("attach to %s: %w", point.Name, point.Lack)
	}
	if begin != nil && point.OnNode() {
		if err := begin(); err != nil {
			return fmt.Errorf("attach to %s: %w", point.Name, err)
		}
	}
	return r.Inventory.Attach(ctx, id, point)
}

// load executes the n-th Load of the plan, if policies allow it.
func (r *Controller) load(ctx context.Context, owner program.Owner, want plan.Plan, n int, g *gate.Gate) (report.Judgement, error) {
	request, err := want.Loads[n].Request(owner)
	if err != nil {
		return report.Judgement{}, &report.BytecodeError{Err: err, Final: true}
	}
	judgement, found, err := g.Admit(ctx)
	switch {
	case err != nil:
	case owner.Bytecode.Image != nil:
		err = r.loadImage(ctx, owner, request, found)
	default:
		err = r.Inventory.Load(ctx, request)
	}
	if err != nil {
		return judgement, err
	}
	return judgement, r.checkSharing(ctx, want.Loads[n].MapOwner, want.Present(n, r.Inventory.Of(owner.Key)))
}

// checkSharing unloads programs that should use another program's maps, but have their
// own. bpfman v0.6.0 reports the other program's maps in that case too, so that users
// would read maps without data. It doesn't pass map_owner_id to the loader: programs
// only share maps that the bytecode pins by name.
func (r *Controller) checkSharing(ctx context.Context, mapOwner *uint32, loaded map[string]daemon.Program) error {
	if mapOwner == nil {
		return nil
	}
	shared := r.Inventory.MapIDs(*mapOwner)
	own := true
	for _, p := range loaded {
		own = own && len(p.MapIDs) > 0 && !slices.ContainsFunc(p.MapIDs, func(id uint32) bool { return slices.Contains(shared, id) })
	}
	if !own || len(shared) == 0 {
		return nil
	}
	var errs []error
	for _, p := range loaded {
		errs = append(errs, r.Inventory.Unload(ctx, p.ID))
	}
	return errors.Join(append([]error{fmt.Errorf(
		"the maps of program %d are not shared: bpfman v0.6 only shares maps that the bytecode pins by name (LIBBPF_PIN_BY_NAME)", *mapOwner)}, errs...)...)
}
