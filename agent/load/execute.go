// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package load executes plans: it has the daemon load, attach, detach, and unload programs.
package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Options are what a Loader needs.
type Options struct {
	// Inventory contains the daemon's programs.
	Inventory *daemon.Inventory
	// Bytecode reads images into the node's store.
	Bytecode *bytecode.Library
	// PinsDir is the directory with maps that bytecode pins by name, or "" if there is
	// none.
	PinsDir string
	// KernelTypes is the directory with the kernel's types. Without it, functions that programs trace aren't looked up.
	KernelTypes string
	// Logs keeps the errors of Loads that are too long for an object's status.
	Logs verifierlog.Store
	// Replaced is called after an owner's bytecode was loaded with new maps in place of pinned ones, with a description.
	Replaced func(owner program.Key, what string)
}

// Loader executes plans. Its methods can be called concurrently, for different owners.
type Loader struct {
	Options

	refusals refusals
	// replacing is held while pins are replaced.
	replacing sync.Mutex
	// stored contains images of programs that are known to be in the store.
	stored *lru.Cache
	// misnamed contains the nearest names of attach points that the kernel doesn't have.
	misnamed *lru.Cache
}

// maxStored is the maximum number of images that are known to be in the store.
const maxStored = 1024

// New returns a Loader.
func New(o Options) *Loader {
	return &Loader{Options: o, refusals: newRefusals(), stored: lru.New(maxStored), misnamed: lru.New(maxMisnamed)}
}

// Pass is the execution of a plan for an owner. Of an owner whose programs are to be unloaded, only the Key is set.
type Pass struct {
	Key   program.Key
	Owner *program.Owner
	Plan  plan.Plan
	// Gate decides what is loaded.
	Gate *gate.Gate
	// Judgements are the verdicts on what is loaded already, by the index of the Load in the plan.
	Judgements map[int]report.Judgement
	// Begin, if not nil, is called before a program is attached where it can cut off the node, with the places of the attach
	// point. If it fails, nothing is attached.
	Begin func(...program.Place) error
}

// Execute executes the steps from the daemon's current programs to the plan. If a step
// fails, only the steps that depend on it are skipped. It returns an error only if ctx
// ends. Other errors are in the outcome.
func (l *Loader) Execute(ctx context.Context, p Pass) (report.Outcome, error) {
	outcome := report.Outcome{Loads: map[int]error{}, Attaches: map[report.Attach]error{}, Judgements: p.Judgements}
	for _, r := range p.Plan.Renamed(l.Inventory.Of(p.Key)) {
		l.Inventory.Rename(r.ProgramID, r.LinkID, r.To)
	}
	actual := l.Inventory.Of(p.Key)
	for n, load := range p.Plan.Loads {
		if present := p.Plan.Present(n, actual); l.unshared(load.MapOwner, present) { // a Load was interrupted
			p.Plan = p.Plan.WithEvicted(slices.Collect(maps.Values(present))...)
		}
	}
	for _, step := range p.Plan.Diff(actual) {
		l.take(ctx, p, step, &outcome)
		if ctx.Err() != nil {
			return outcome, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
	}
	if err := l.Inventory.Retire(ctx, p.Key, func(function string) bool { return !waits(p.Plan, function, outcome) }); err != nil {
		outcome.Removals = append(outcome.Removals, err)
	}
	return outcome, nil
}

// waits reports whether a plan has a function that isn't loaded and attached everywhere yet.
func waits(want plan.Plan, function string, outcome report.Outcome) bool {
	for n, load := range want.Loads {
		if len(load.Users(function)) > 0 && outcome.Loads[n] != nil {
			return true
		}
	}
	for at, err := range outcome.Attaches {
		if at.Function == function && !report.IsUndone(err) {
			return true
		}
	}
	return slices.ContainsFunc(want.Blocked, func(b plan.Blocked) bool { return b.LoadInfo().GetName() == function || b.LoadInfo().GetName() == "" })
}

// manyLinks is the number of links from which on Withdraw unloads their program, which is one call. Its maps are lost then.
const manyLinks = 16

// Withdraw removes the programs and links of an owner that a plan doesn't have, in few calls, before something is loaded in
// their place. Until then, a node that they cut off stays cut off. So a program with many of these links is unloaded, even if the
// plan has another of its links.
func (l *Loader) Withdraw(ctx context.Context, key program.Key, want plan.Plan) error {
	actual := l.Inventory.Of(key)
	steps := want.Diff(actual)
	links, unload := map[uint32]int{}, map[uint32]bool{}
	for _, step := range steps {
		switch step.Op {
		case plan.OpUnload:
			unload[step.ProgramID] = true
		case plan.OpDetach:
			links[step.ProgramID]++
		case plan.OpLoad, plan.OpAttach:
		}
	}
	for _, p := range actual {
		if links[p.ID] >= manyLinks {
			unload[p.ID] = true
		}
	}
	var errs []error
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(unload))) { // users of maps before the owners of the maps
		errs = append(errs, l.Inventory.Unload(ctx, id))
	}
	for _, step := range steps {
		if step.Op == plan.OpDetach && !unload[step.ProgramID] {
			errs = append(errs, l.Inventory.Detach(ctx, step.ProgramID, step.LinkID))
		}
	}
	return errors.Join(errs...)
}

// take executes one step, and stores its error in the outcome.
func (l *Loader) take(ctx context.Context, p Pass, step plan.Step, outcome *report.Outcome) {
	switch step.Op {
	case plan.OpLoad:
		judgement, err := l.load(ctx, *p.Owner, p.Plan, step.Load, p.Gate)
		outcome.Judgements[step.Load] = judgement
		if err != nil {
			outcome.Loads[step.Load] = err
		}
	case plan.OpAttach:
		loaded, there := p.Plan.Present(step.Load, l.Inventory.Of(p.Key))[step.Function]
		if !there || p.Plan.Evicted[loaded.ID] {
			return // its Load failed, which is reported
		}
		if err := l.attach(ctx, p, step, loaded.ID); err != nil {
			outcome.Attaches[report.Attach{Load: step.Load, Function: step.Function, Link: plan.LinkOf(step.Point)}] = err
		}
	case plan.OpDetach:
		if err := l.Inventory.Detach(ctx, step.ProgramID, step.LinkID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	case plan.OpUnload:
		if step.Replaced && len(outcome.Loads) > 0 {
			return // it stays until its successor is loaded
		}
		if err := l.Inventory.Unload(ctx, step.ProgramID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	}
}

// attach attaches a program to an attach point, unless that is missing. A missing one
// isn't left to the daemon, which might find it a moment before the agent does: the
// link would have the digest of a missing attach point.
func (l *Loader) attach(ctx context.Context, p Pass, step plan.Step, id uint32) error {
	point := step.Point
	if point.Lack != nil {
		return fmt.Errorf("attach to %s: %w", point.Name, point.Lack)
	}
	if p.Begin != nil && point.OnNode() {
		if err := p.Begin(p.Plan.Loads[step.Load].Places(step.Function, point)...); err != nil {
			return fmt.Errorf("attach to %s: %w", point.Name, err)
		}
	}
	return l.suggestPoint(l.Inventory.Attach(ctx, id, point), point)
}

// load executes the n-th Load of the plan, if the gate admits the bytecode.
func (l *Loader) load(ctx context.Context, owner program.Owner, want plan.Plan, n int, g *gate.Gate) (report.Judgement, error) {
	request, err := want.Loads[n].Request(owner)
	if err != nil {
		return report.Judgement{}, &report.BytecodeError{Err: err, Final: true}
	}
	judgement, found, err := g.Admit(ctx)
	if err == nil {
		err = untraced(request, l.KernelTypes, securityModules)
	}
	if err == nil && owner.Bytecode.Image != nil {
		if err = locate(request, owner, found); err == nil {
			err = setGlobals(request, owner, found)
		}
		if !l.Inventory.SharesVariables() {
			noteUnshared(request, found.Object.Shared)
		}
	}
	if err != nil {
		return judgement, err
	}
	return judgement, l.refusals.try(owner, request, func() error {
		if err := l.call(ctx, owner, request, found); err != nil {
			return err
		}
		mapOwner, loaded := want.Loads[n].MapOwner, want.Present(n, l.Inventory.Of(owner.Key))
		if !l.unshared(mapOwner, loaded) {
			return nil
		}
		errs := []error{&unsharedError{*mapOwner}}
		for _, p := range loaded {
			errs = append(errs, l.Inventory.Unload(ctx, p.ID))
		}
		return errors.Join(errs...)
	})
}

// call has the daemon load functions from an image's object, or from a file of the user's.
func (l *Loader) call(ctx context.Context, owner program.Owner, request *gobpfman.LoadRequest, found bytecode.Bytecode) error {
	if owner.Bytecode.Image == nil {
		return l.request(ctx, owner.Key, request)
	}
	if err := l.settlePins(ctx); err != nil {
		return err
	}
	err := l.request(ctx, owner.Key, request)
	if failed := (*daemon.Error)(nil); errors.As(err, &failed) && failed.Refused() {
		err = l.mendPins(ctx, owner, request, found.Object.Maps, err)
	}
	return nameSections(suggestVariable(err, found), request, found)
}

// unsharedError is about programs that have their own maps, and should use those of another program.
type unsharedError struct{ mapOwner uint32 }

// Problem implements the method of errors that name their problem.
func (e *unsharedError) Problem() problem.Reason { return problem.MapsNotShared }

func (e *unsharedError) Error() string {
	return problem.Notef(problem.MapsNotShared, "the maps of program %d are not shared: bpfman v0.6 only shares maps that the bytecode pins by name (LIBBPF_PIN_BY_NAME)", e.mapOwner).Text
}

// unshared reports whether programs should use another program's maps, but have their own.
// bpfman v0.6.0 reports the other program's maps in that case too, so that users would read
// maps without data. It doesn't pass map_owner_id to the loader: programs only share maps
// that the bytecode pins by name.
func (l *Loader) unshared(mapOwner *uint32, loaded map[string]daemon.Program) bool {
	if mapOwner == nil || len(loaded) == 0 {
		return false
	}
	shared := l.Inventory.MapIDs(*mapOwner)
	for _, p := range loaded {
		if len(p.MapIDs) == 0 || slices.ContainsFunc(p.MapIDs, func(id uint32) bool { return slices.Contains(shared, id) }) {
			return false
		}
	}
	return len(shared) > 0
}
