// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
)

// AttachedOnNode returns the places where programs of the plan are attached, and can cut off the node.
func (p Plan) AttachedOnNode(actual []daemon.Program) []program.Place {
	var places []program.Place
	for n, load := range p.Loads {
		for function, loaded := range p.Present(n, actual) {
			links := sets.New(slices.Collect(maps.Values(loaded.Links))...)
			for _, user := range load.Users(function) {
				for _, point := range user.Points {
					if point.OnNode() && links.Has(LinkOf(point)) {
						places = append(places, load.places(function, point)...)
					}
				}
			}
		}
	}
	slices.SortFunc(places, program.Place.Compare)
	return slices.Compact(places)
}

// ConfinedTo returns the plan that has programs attached at certain places only, as far as they can cut off the node. Instead is
// the reason why they aren't attached elsewhere.
func (p Plan) ConfinedTo(places []program.Place, instead error) Plan {
	certain := sets.New(places...)
	return p.With(func(n int, wanted Program) Program {
		for i := range wanted.Points {
			if point := &wanted.Points[i]; point.OnNode() && !certain.HasAny(p.Loads[n].Places(wanted.Function(), *point)...) {
				point.Lack, point.Withdrawn = cmp.Or(point.Lack, instead), true
			}
		}
		return wanted
	})
}

// StayingAt returns the plan that has links on the node stay at certain places only, if it isn't known whether a program wants
// them. Without it, they stay everywhere.
func (p Plan) StayingAt(places []program.Place, node program.Node) Plan {
	certain := sets.New(places...)
	node.Hosted = true
	return p.With(func(n int, wanted Program) Program {
		staying := sets.New[daemon.Link]()
		points, _ := wanted.AttachPoints(node) // the plan has the problem
		for _, point := range points {
			earlier := program.Place{Member: wanted.ID, Point: point.Name}
			if point.OnNode() && certain.HasAny(append(p.Loads[n].Places(wanted.Function(), point), earlier)...) {
				staying.Insert(LinkOf(point))
			}
		}
		wanted.stays = func(link daemon.Link) bool { return !wanted.OnNode(link.Point) || staying.Has(link) }
		return wanted
	})
}

// Alone reports whether all of an owner's programs are the plan's. Those of an earlier version stay until the plan's are loaded.
func (p Plan) Alone(actual []daemon.Program) bool {
	left := len(actual)
	for n := range p.Loads {
		left -= len(p.Present(n, actual))
	}
	return left == 0
}

// Leaves reports whether a program keeps a link on the node that it isn't known to want.
func (p Plan) Leaves(actual []daemon.Program) bool {
	for n, load := range p.Loads {
		for function, loaded := range p.Present(n, actual) {
			users, left := load.Users(function), sets.New(slices.Collect(maps.Values(loaded.Links))...)
			for _, user := range users {
				for _, point := range user.Points {
					left.Delete(LinkOf(point))
				}
			}
			for link := range left {
				if slices.ContainsFunc(users, func(user Program) bool { return user.OnNode(link.Point) }) {
					return true
				}
			}
		}
	}
	return false
}

// Places returns the places that can stand for a function's attach point in a record, even in one of an earlier version of bpfman.
func (l Load) Places(function string, point program.AttachPoint) []program.Place {
	places := l.places(function, point)
	for _, user := range l.Users(function) {
		if user.Wants(LinkOf(point)) {
			places = append(places, program.Place{Member: user.ID, Point: point.Name})
		}
	}
	return places
}

// places returns the places of a function's attach point.
func (l Load) places(function string, point program.AttachPoint) []program.Place {
	var places []program.Place
	for _, user := range l.Users(function) {
		places = append(places, user.Place(point))
	}
	return places
}
