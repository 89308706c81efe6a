// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
)

// Op is the operation of a step.
type Op int

// The operations. Each is one call of the daemon.
const (
	OpLoad Op = iota
	OpAttach
	OpDetach
	OpUnload
)

// Step is one call of the daemon.
type Step struct {
	Op Op
	// Load is the index of the step's Load in the plan. OpUnload doesn't use it.
	Load int
	// Function names the program in this Load for OpAttach and OpDetach. The program
	// may not be loaded yet.
	Function string
	// Point is the attach point for OpAttach.
	Point program.AttachPoint
	// ProgramID is the program for OpDetach and OpUnload. LinkID is the link for
	// OpDetach.
	ProgramID uint32
	LinkID    uint32
	// Replaced means that the plan loads a replacement. OpUnload then waits until
	// all of the plan's programs are loaded.
	Replaced bool
}

// Diff returns the steps from the daemon's programs of an owner to the plan, in
// the order in which they must run. New programs are loaded and attached before
// old ones are removed.
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
	// A blocked program that is already loaded stays unchanged.
	for _, blocked := range p.Blocked {
		for _, a := range staying {
			kept[a.ID] = kept[a.ID] || p.KeptFor(blocked, a)
		}
	}
	// Unload users of maps before the owners of the maps, which were loaded first.
	for _, a := range slices.Backward(actual) {
		if !kept[a.ID] {
			steps = append(steps, Step{Op: OpUnload, ProgramID: a.ID, Replaced: len(p.Loads) > 0 && !p.Evicted[a.ID]})
		}
	}
	return steps
}

// KeptFor reports whether a loaded program stays because its replacement is
// blocked. A replacement without a function name can belong to any loaded
// program. It keeps them all, but only if the plan has no other programs.
func (p Plan) KeptFor(blocked Blocked, a daemon.Program) bool {
	if a.OwnerUID != string(p.UID) {
		return false
	}
	function := blocked.LoadInfo().GetName()
	return a.Function == function || (function == "" && len(p.Loads) == 0)
}

// Present returns the programs of the n-th Load, by function, if all are loaded
// and use the right maps, or nil otherwise. If programs are loaded twice, it
// returns the newer ones.
func (p Plan) Present(n int, actual []daemon.Program) map[string]daemon.Program {
	load := p.Loads[n]
	found := map[string]daemon.Program{}
	for _, a := range actual { // by ascending ID, so that the newest is last
		if a.OwnerUID == string(p.UID) && (a.LoadID == load.ID || a.LoadID == load.SameID) && ptr.Equal(a.MapOwnerID, load.MapOwner) {
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

// Rename is a link that is known by an earlier name of its attach point.
type Rename struct {
	ProgramID, LinkID uint32
	To                daemon.Link
}

// Renamed returns the links whose attach points have other names now. A pod is named with its UID as long as another one has its
// name. Whoever can create the other one can't have the program detached for a moment, because the digest identifies the link.
func (p Plan) Renamed(actual []daemon.Program) []Rename {
	var renamed []Rename
	for n, load := range p.Loads {
		for function, loaded := range p.Present(n, actual) {
			wanted := map[string]daemon.Link{}
			for _, user := range load.Users(function) {
				for _, point := range user.Points {
					wanted[point.Digest] = LinkOf(point)
				}
			}
			for id, link := range loaded.Links {
				if to, is := wanted[link.Digest]; is && link != (daemon.Link{}) && to != link {
					renamed = append(renamed, Rename{loaded.ID, id, to})
				}
			}
		}
	}
	return renamed
}

// relink detaches links that no program of a function wants, and attaches missing
// ones. If not all attach points are known, it only detaches links that are
// withdrawn, that don't stay, or whose attach point is unknown. If a program is held, it doesn't attach, and leaves the latter.
func (l Load) relink(n int, function string, loaded daemon.Program) []Step {
	missing, withdrawn := map[daemon.Link]bool{}, map[daemon.Link]bool{}
	var points []program.AttachPoint
	users := l.Users(function)
	stays := func(link daemon.Link) bool {
		return slices.ContainsFunc(users, func(user Program) bool { return user.mayWant(link) })
	}
	held := slices.ContainsFunc(users, func(user Program) bool { return user.Held })
	for _, user := range users {
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
		} else if unknown := link == (daemon.Link{}); unknown && !held || !unknown && (withdrawn[link] || !stays(link)) {
			steps = append(steps, Step{Op: OpDetach, Load: n, Function: function, ProgramID: loaded.ID, LinkID: id})
		}
	}
	for _, point := range points {
		if missing[LinkOf(point)] && !held {
			steps = append(steps, Step{Op: OpAttach, Load: n, Function: function, Point: point})
		}
	}
	return steps
}
