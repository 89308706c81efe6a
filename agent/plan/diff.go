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
	staying := slices.DeleteFunc(slices.Clone(actual), func(a daemon.Program) bool { return p.Evicted[a.ID] })
	for n, load := range p.Loads {
		present := p.Present(n, staying)
		if present == nil {
			steps = append(steps, Step{Op: OpLoad, Load: n})
		}
		for _, f := range load.Functions {
			loaded, there := present[f.GetName()]
			if there {
				kept[loaded.ID] = true
			}
			steps = append(steps, load.relink(n, f.GetName(), loaded)...)
		}
	}
	// A blocked program that is loaded already stays as it is.
	for _, blocked := range p.Blocked {
		for _, a := range staying {
			kept[a.ID] = kept[a.ID] || p.KeptFor(blocked, a)
		}
	}
	// Users of maps go before their owners, which were loaded before them.
	for _, a := range slices.Backward(actual) {
		if !kept[a.ID] {
			steps = append(steps, Step{Op: OpUnload, ProgramID: a.ID, Replaced: len(p.Loads) > 0 && !p.Evicted[a.ID]})
		}
	}
	return steps
}

// KeptFor tells whether a program that is loaded stays because its successor is
// blocked. A successor that names no function may be any program's, which is
// known only where nothing else is wanted.
func (p Plan) KeptFor(blocked Blocked, a daemon.Program) bool {
	if a.OwnerUID != string(p.UID) {
		return false
	}
	function := blocked.LoadInfo().GetName()
	return a.Function == function || (function == "" && len(p.Loads) == 0)
}

// Present returns the programs that the n-th Load asks for, by function, if all
// are there and use the maps that they should; else nil. Where there are two
// sets, it is the newer one.
func (p Plan) Present(n int, actual []daemon.Program) map[string]daemon.Program {
	load := p.Loads[n]
	found := map[string]daemon.Program{}
	for _, a := range actual { // by ascending id, so that the newest stays
		if a.OwnerUID == string(p.UID) && a.LoadID == load.ID && equal(a.MapOwnerID, load.MapOwner) {
			found[a.Function] = a
		}
	}
	for _, f := range load.Functions {
		if _, ok := found[f.GetName()]; !ok {
			return nil
		}
	}
	return found
}

// relink detaches what no program of a function wants and attaches what is
// missing. Where not all attach points could be told, known links are left alone.
func (l Load) relink(n int, function string, loaded daemon.Program) []Step {
	missing, withdrawn := map[daemon.Link]bool{}, map[daemon.Link]bool{}
	var points []program.AttachPoint
	complete := true
	for _, user := range l.Users(function) {
		complete = complete && user.complete()
		for _, point := range user.Points {
			withdrawn[LinkOf(point)] = withdrawn[LinkOf(point)] || point.Withdrawn
			if !missing[LinkOf(point)] {
				missing[LinkOf(point)] = true
				points = append(points, point)
			}
		}
	}
	var steps []Step
	for _, id := range slices.Sorted(maps.Keys(loaded.Links)) {
		link := loaded.Links[id]
		if missing[link] && !withdrawn[link] {
			delete(missing, link)
		} else if complete || withdrawn[link] || link == (daemon.Link{}) {
			steps = append(steps, Step{Op: OpDetach, Load: n, Function: function, ProgramID: loaded.ID, LinkID: id})
		}
	}
	for _, point := range points {
		if missing[LinkOf(point)] {
			steps = append(steps, Step{Op: OpAttach, Load: n, Function: function, Point: point})
		}
	}
	return steps
}

func equal(a, b *uint32) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
