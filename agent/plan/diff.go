// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
)

// Op is what a step does.
type Op int

// The steps. Each is one call of the daemon.
const (
	OpLoad Op = iota
	OpAttach
	OpDetach
	OpUnload
)

// Step is one call of the daemon.
type Step struct {
	Op Op
	// Load is the index of the plan's Load that the step belongs to; OpUnload
	// belongs to none.
	Load int
	// Function names the program of that Load which OpAttach and OpDetach are
	// about. It may not be loaded yet.
	Function string
	// Point is where OpAttach attaches.
	Point program.AttachPoint
	// ProgramID is the program that OpDetach and OpUnload are about, LinkID the
	// link that OpDetach removes.
	ProgramID uint32
	LinkID    uint32
	// Replaced tells of OpUnload that the plan loads a successor: the old one
	// stays until all of the plan's loads are there.
	Replaced bool
}

// Diff returns the steps from what the daemon holds for an owner to what the
// plan wants, in the order in which they are to be taken: what is new is loaded
// and attached before what is old goes.
func (p Plan) Diff(actual []daemon.Program) []Step {
	var steps []Step
	kept := map[uint32]bool{}
	for n, load := range p.Loads {
		present := p.Present(n, actual)
		if present == nil {
			steps = append(steps, Step{Op: OpLoad, Load: n})
		}
		for _, wanted := range load.Programs {
			function := wanted.LoadInfo().GetName()
			loaded := present[function]
			if present != nil {
				kept[loaded.ID] = true
			}
			steps = append(steps, relink(n, wanted, loaded)...)
		}
	}
	// A blocked program that is loaded already stays as it is.
	if len(p.Blocked) > 0 {
		for _, a := range actual {
			if a.OwnerUID == string(p.UID) && p.blocks(a.Function) {
				kept[a.ID] = true
			}
		}
	}
	// Users of maps go before their owners, which were loaded before them.
	for _, a := range slices.Backward(actual) {
		if !kept[a.ID] {
			steps = append(steps, Step{Op: OpUnload, ProgramID: a.ID, Replaced: len(p.Loads) > 0})
		}
	}
	return steps
}

func (p Plan) blocks(function string) bool {
	return slices.ContainsFunc(p.Blocked, func(b Blocked) bool { return b.LoadInfo().GetName() == function })
}

// Present returns the programs that the n-th Load asks for, by function, if all
// are there and use the maps that they should; else nil. Where there are two
// sets, it is the newer one.
func (p Plan) Present(n int, actual []daemon.Program) map[string]daemon.Program {
	load := p.Loads[n]
	mapOwner, known := p.MapOwner(n, actual)
	if !known {
		return nil
	}
	found := map[string]daemon.Program{}
	for _, a := range actual { // by ascending id, so that the newest stays
		if a.OwnerUID == string(p.UID) && a.LoadID == load.ID && equal(a.MapOwnerID, mapOwner) {
			found[a.Function] = a
		}
	}
	for _, wanted := range load.Programs {
		if _, ok := found[wanted.LoadInfo().GetName()]; !ok {
			return nil
		}
	}
	return found
}

// MapOwner returns the kernel id of the program whose maps the n-th Load uses,
// nil where it has its own. It isn't known while that program isn't loaded.
func (p Plan) MapOwner(n int, actual []daemon.Program) (id *uint32, known bool) {
	load := p.Loads[n]
	if !load.SharesFirst {
		return load.MapOwner, true
	}
	first := p.Present(0, actual)
	if first == nil {
		return nil, false
	}
	owner := first[p.Loads[0].Programs[0].LoadInfo().GetName()].ID
	return &owner, true
}

// relink detaches what isn't wanted and attaches what is missing. Where not all
// attach points could be told, known links are left alone.
func relink(n int, wanted Program, loaded daemon.Program) []Step {
	function := wanted.LoadInfo().GetName()
	missing := map[daemon.Link]program.AttachPoint{}
	for _, point := range wanted.Points {
		missing[linkOf(point)] = point
	}
	var steps []Step
	for _, id := range slices.Sorted(maps.Keys(loaded.Links)) {
		link := loaded.Links[id]
		if _, ok := missing[link]; ok {
			delete(missing, link)
		} else if wanted.Problem == nil || link == (daemon.Link{}) {
			steps = append(steps, Step{Op: OpDetach, Load: n, Function: function, ProgramID: loaded.ID, LinkID: id})
		}
	}
	for _, point := range wanted.Points {
		if _, ok := missing[linkOf(point)]; ok {
			steps = append(steps, Step{Op: OpAttach, Load: n, Function: function, Point: point})
		}
	}
	return steps
}

// linkOf is the link that an attach point asks for.
func linkOf(point program.AttachPoint) daemon.Link {
	return daemon.Link{Point: point.Name, Digest: point.Digest}
}

func equal(a, b *uint32) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
