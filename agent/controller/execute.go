// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"fmt"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// execute takes the steps from what the daemon holds to the plan. A step that
// fails doesn't keep the others from being taken, save those that need it. The
// error is for the agent's own end; all else is in the outcome.
func (r *Reconciler) execute(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan) (report.Outcome, error) {
	outcome := report.Outcome{Loads: map[int]error{}, Attaches: map[report.Attach]error{}}
	for _, step := range want.Diff(r.Inventory.Of(key)) {
		r.take(ctx, key, owner, want, step, &outcome)
		if ctx.Err() != nil {
			return outcome, fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}
	return outcome, nil
}

// take takes one step and puts its error into the outcome.
func (r *Reconciler) take(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, step plan.Step, outcome *report.Outcome) {
	switch step.Op {
	case plan.OpLoad:
		if err := r.load(ctx, *owner, want, step.Load); err != nil {
			outcome.Loads[step.Load] = err
		}
	case plan.OpAttach:
		loaded, there := want.Present(step.Load, r.Inventory.Of(key))[step.Function]
		if !there {
			return // its Load failed, which is told
		}
		if err := r.Inventory.Attach(ctx, loaded.ID, step.Point); err != nil {
			if step.Point.Lack != "" {
				err = fmt.Errorf("%w: %s", err, step.Point.Lack)
			}
			outcome.Attaches[report.Attach{Load: step.Load, Function: step.Function, Point: step.Point.Name}] = err
		}
	case plan.OpDetach:
		if err := r.Inventory.Detach(ctx, step.ProgramID, step.LinkID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	case plan.OpUnload:
		if step.Replaced && len(outcome.Loads) > 0 {
			return // it stays until its successor is there
		}
		if err := r.Inventory.Unload(ctx, step.ProgramID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	}
}

// load makes the plan's n-th Load. Credentials are read for it alone, so that a
// Secret that vanishes later harms nothing that runs.
func (r *Reconciler) load(ctx context.Context, owner program.Owner, want plan.Plan, n int) error {
	mapOwner, known := want.MapOwner(n, r.Inventory.Of(owner.Key))
	if !known {
		return fmt.Errorf("the program whose maps are to be shared is not loaded")
	}
	request, err := want.Loads[n].Request(owner, mapOwner)
	if err != nil {
		return &report.BytecodeError{Err: err}
	}
	if image := request.GetBytecode().GetImage(); image != nil {
		credentials, err := bytecode.CredentialsFor(ctx, r.Secrets, owner.Namespace, owner.Bytecode.Image)
		if err != nil {
			return &report.BytecodeError{Err: err}
		}
		authenticate(image, credentials)
		return r.loadImage(ctx, request, image)
	}
	return r.Inventory.Load(ctx, request)
}

// loadImage keeps a silent registry from holding up the daemon: then only what
// the daemon has already is loaded.
func (r *Reconciler) loadImage(ctx context.Context, request *gobpfman.LoadRequest, image *gobpfman.BytecodeImage) error {
	if image.GetImagePullPolicy() == plan.PullNever {
		return r.Inventory.Load(ctx, request)
	}
	silent := r.registries.Silent(ctx, image.GetUrl())
	if silent == nil {
		return r.Inventory.Load(ctx, request)
	}
	if image.GetImagePullPolicy() == plan.PullAlways {
		return &report.BytecodeError{Err: fmt.Errorf("pull %s: %w", image.GetUrl(), silent)}
	}
	image.ImagePullPolicy = plan.PullNever
	if err := r.Inventory.Load(ctx, request); err != nil {
		return &report.BytecodeError{Err: fmt.Errorf("%w, and without it: %w", silent, err)}
	}
	return nil
}

func authenticate(image *gobpfman.BytecodeImage, c bytecode.Credentials) {
	if c != (bytecode.Credentials{}) {
		image.Username, image.Password = &c.Username, &c.Password
	}
}
