// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/why"
)

// Facts are what is known about the cluster.
type Facts struct {
	Machines    map[string]*Machine
	Inventories map[string]*Inventory
	Objects     map[v1alpha1.BpfNodeOwner]*Declared
	Events      []*Event
	// Failing are the objects that fail on a node.
	Failing map[string][]v1alpha1.BpfNodeOwner
	// Components are problems of the node components that the operator found.
	Components []string
	// Unseen is what can't be read, and why.
	Unseen []string
	// Reading is what is still being read for the first time.
	Reading []string
}

// Filter selects programs, objects, and what happened to them. An empty field selects all.
type Filter struct {
	Text, Type, Image, Namespace, Owner string
}

// Cluster is the view of the whole cluster.
type Cluster struct {
	Nodes    []Cell   `json:"nodes"`
	Totals   Totals   `json:"totals"`
	Programs []Row    `json:"programs"`
	Objects  []Brief  `json:"objects"`
	Changes  []Change `json:"changes"`
	Choices  Choices  `json:"choices"`
	Problems
}

// Problems are shown by every view.
type Problems struct {
	Components []string `json:"components,omitempty"`
	Unseen     []string `json:"unseen,omitempty"`
	Reading    []string `json:"reading,omitempty"`
}

// Health is the state of a node, the most severe first.
type Health string

// The states of a node.
const (
	Failed    Health = "failed"    // an object fails on it
	NotReady  Health = "notready"  // its kubelet isn't ready
	Conflict  Health = "conflict"  // programs conflict, or the inspector can't read everything
	Unknown   Health = "unknown"   // nothing is known about its programs
	Unmatched Health = "unmatched" // healthy, but without the programs that the filter selects
	Healthy   Health = "healthy"
)

// Cell is a node.
type Cell struct {
	Name   string `json:"name"`
	Health Health `json:"health"`
	// Why says why it isn't healthy.
	Why string `json:"why,omitempty"`
	// Matched counts the programs that the filter selects.
	Matched   int `json:"matched"`
	Bpfman    int `json:"bpfman"`
	Others    int `json:"others"`
	Conflicts int `json:"conflicts,omitempty"`
}

// Totals counts nodes by health, programs, and objects by state.
type Totals struct {
	Nodes     map[Health]int    `json:"nodes"`
	Objects   map[why.State]int `json:"objects"`
	Programs  int               `json:"programs"`
	Bpfman    int               `json:"bpfman"`
	Conflicts int               `json:"conflicts"`
	// Conflicting counts the nodes with conflicts.
	Conflicting int `json:"conflicting"`
}

// Row is one program on all nodes.
type Row struct {
	Key    string                 `json:"key"`
	Name   string                 `json:"name"`
	Type   string                 `json:"type"`
	Bpfman bool                   `json:"bpfman,omitempty"`
	Owner  *v1alpha1.BpfNodeOwner `json:"owner,omitempty"`
	Owned  string                 `json:"owned,omitempty"`
	Image  string                 `json:"image,omitempty"`
	Nodes  int                    `json:"nodes"`
	Count  int                    `json:"count"`
	// Node is one of the nodes.
	Node string `json:"node"`
}

// Brief is an object.
type Brief struct {
	why.Brief
	Image  string               `json:"image,omitempty"`
	Counts *v1alpha1.NodeCounts `json:"counts,omitempty"`
	// Rollout is the state of its rollout, if there is one.
	Rollout v1alpha1.RolloutState `json:"rollout,omitempty"`
	// MoreConflicts counts conflicts that aren't listed.
	MoreConflicts int `json:"moreConflicts,omitempty"`
}

// Change is something that happened in the last hour.
type Change struct {
	At      time.Time              `json:"at"`
	Owner   *v1alpha1.BpfNodeOwner `json:"owner,omitempty"`
	What    string                 `json:"what"`
	Message string                 `json:"message,omitempty"`
	Warning bool                   `json:"warning,omitempty"`
	// Node is set if it happened on one node.
	Node string `json:"node,omitempty"`
	// More counts other objects of the same kind to which the same happened shortly before.
	More int `json:"more,omitempty"`
}

// Choices are the values that filters can have.
type Choices struct {
	Types      []string `json:"types"`
	Images     []string `json:"images"`
	Namespaces []string `json:"namespaces"`
	Owners     []string `json:"owners"`
}

const (
	// maxConflicts is the maximum number of conflicts that are listed of each object.
	maxConflicts = 2
	// maxChanges is the maximum number of changes.
	maxChanges = 200
	// few changes of the same sort are shown one by one.
	few = 4
)

// Of returns the view of the cluster.
func (f *Facts) Of(filter Filter, now time.Time) *Cluster {
	v := &Cluster{
		Problems: Problems{f.Components, f.Unseen, f.Reading}, Nodes: []Cell{}, Programs: []Row{}, Objects: []Brief{},
		Totals: Totals{Nodes: map[Health]int{}, Objects: map[why.State]int{}},
	}
	programs := f.count(filter)
	for _, name := range f.names() {
		cell := f.cell(name, programs.matched[name], filter != Filter{})
		v.Totals.Nodes[cell.Health]++
		v.Totals.Conflicts += cell.Conflicts
		v.Totals.Conflicting += min(cell.Conflicts, 1)
		v.Totals.Programs += cell.Bpfman + cell.Others
		v.Totals.Bpfman += cell.Bpfman
		v.Nodes = append(v.Nodes, cell)
	}
	v.Programs, v.Choices = programs.rows(), programs.choices()
	for _, b := range f.briefs() {
		v.Totals.Objects[b.State]++
		if programs.selects(v1alpha1.BpfNodeOwner{Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}) {
			v.Objects = append(v.Objects, b)
		}
	}
	v.Changes = programs.changes(now.Add(-time.Hour))
	return v
}

// names returns the names of all nodes.
func (f *Facts) names() []string {
	all := map[string]struct{}{}
	for name := range f.Machines {
		all[name] = struct{}{}
	}
	for name := range f.Inventories {
		all[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all))
}

// Cell returns a node, and whether anything is known about it.
func (f *Facts) Cell(name string) (cell Cell, known bool) {
	return f.cell(name, 0, false), f.Machines[name] != nil || f.Inventories[name] != nil
}

func (f *Facts) cell(name string, matched int, filtered bool) Cell {
	c := Cell{Name: name, Health: Healthy, Matched: matched}
	r := f.Inventories[name]
	if r != nil {
		c.Bpfman, c.Others, c.Conflicts = r.Bpfman, r.Total-r.Bpfman, r.Conflicting
	}
	m := f.Machines[name]
	switch failing := f.Failing[name]; {
	case len(failing) > 0:
		names := make([]string, len(failing))
		for i, owner := range failing {
			names[i] = owner.String()
		}
		slices.Sort(names)
		c.Health, c.Why = Failed, fmt.Sprintf("%d failed: %s", len(names), strings.Join(names, ", "))
	case m != nil && m.NotReady != "":
		c.Health, c.Why = NotReady, m.NotReady
	case r == nil:
		c.Health, c.Why = Unknown, "no inspector has reported what the node runs"
	case len(r.Conflicts) > 0:
		c.Health, c.Why = Conflict, r.Conflicts[0].Type+": "+r.Conflicts[0].Message
	case r.Problem != "":
		c.Health, c.Why = Conflict, "the inspector can't read everything: "+r.Problem
	case filtered && matched == 0:
		c.Health = Unmatched
	}
	return c
}

// counted counts programs by their sorts.
type counted struct {
	facts   *Facts
	filter  Filter
	rowOf   map[unique.Handle[Sort]]*Row
	matched map[string]int
	all     map[unique.Handle[Sort]]struct{}
	owners  map[v1alpha1.BpfNodeOwner]bool // of programs, and whether the filter selects one of these
}

func (f *Facts) count(filter Filter) *counted {
	c := &counted{f, filter, map[unique.Handle[Sort]]*Row{}, map[string]int{}, map[unique.Handle[Sort]]struct{}{}, map[v1alpha1.BpfNodeOwner]bool{}}
	for name, r := range f.Inventories {
		on := map[unique.Handle[Sort]]struct{}{}
		for _, p := range r.Programs {
			row, known := c.rowOf[p.Sort]
			if !known {
				row = c.add(p.Sort)
			}
			if row == nil {
				continue
			}
			c.matched[name]++
			row.Count++
			if _, again := on[p.Sort]; !again {
				on[p.Sort] = struct{}{}
				row.Nodes++
			}
			if row.Node == "" || name < row.Node {
				row.Node = name
			}
		}
	}
	return c
}

// add adds the row of a sort, or nil if the filter doesn't select it.
func (c *counted) add(h unique.Handle[Sort]) *Row {
	s := h.Value()
	row := &Row{Key: s.Key(), Name: s.Name, Type: s.Type, Bpfman: s.Bpfman, Owned: s.Owned()}
	if s.Owner.Name != "" {
		row.Owner = &s.Owner
		row.Image = image(c.facts.Objects[s.Owner])
	}
	c.all[h] = struct{}{}
	selected := c.filter.selects(row, s.Owner.Namespace, row.Key)
	if row.Owner != nil {
		c.owners[*row.Owner] = c.owners[*row.Owner] || selected
	}
	if !selected {
		row = nil
	}
	c.rowOf[h] = row
	return row
}

// selects reports whether a row is selected, by its fields, a namespace, and a text that names it.
func (f Filter) selects(row *Row, namespace, name string) bool {
	return (f.Type == "" || f.Type == row.Type) && (f.Image == "" || f.Image == row.Image) &&
		(f.Namespace == "" || f.Namespace == namespace) && (f.Owner == "" || f.Owner == row.Owned) &&
		(f.Text == "" || strings.Contains(strings.ToLower(name+" "+row.Image), strings.ToLower(f.Text)))
}

// selects reports whether the filter selects an object: by its programs, or by itself. One that isn't loaded anywhere, for example
// because it fails, is of each type.
func (c *counted) selects(owner v1alpha1.BpfNodeOwner) bool {
	selected, loaded := c.owners[owner]
	itself := Row{Owned: owner.String(), Image: image(c.facts.Objects[owner])}
	if !loaded {
		itself.Type = c.filter.Type
	}
	return selected || c.filter.selects(&itself, owner.Namespace, owner.String())
}

// image returns the reference or path of an object's bytecode.
func image(d *Declared) string {
	if d == nil || d.User == nil {
		return ""
	}
	return why.BytecodeOf(d.User)
}

// rows returns the programs of bpfman's objects first, and then those on most nodes.
func (c *counted) rows() []Row {
	rows := []Row{}
	for _, row := range c.rowOf {
		if row != nil {
			rows = append(rows, *row)
		}
	}
	rank := func(r Row) int {
		switch {
		case r.Owner != nil:
			return 0
		case !r.Bpfman:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Owned, b.Owned), strings.Compare(a.Key, b.Key))
	})
	return rows
}

func (c *counted) choices() Choices {
	types, images, namespaces, owners := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for h := range c.all {
		s := h.Value()
		types[s.Type], namespaces[s.Owner.Namespace], owners[s.Owned()] = true, true, true
		images[image(c.facts.Objects[s.Owner])] = true
	}
	values := func(of map[string]bool) []string {
		delete(of, "")
		return append([]string{}, slices.Sorted(maps.Keys(of))...)
	}
	return Choices{values(types), values(images), values(namespaces), values(owners)}
}

// briefs returns all objects, the most severe first.
func (f *Facts) briefs() []Brief {
	conflicts := map[v1alpha1.BpfNodeOwner][]why.Conflict{}
	more := map[v1alpha1.BpfNodeOwner]int{}
	for _, name := range slices.Sorted(maps.Keys(f.Inventories)) {
		for _, c := range f.Inventories[name].Conflicts {
			switch {
			case c.Owner == nil:
			case len(conflicts[*c.Owner]) >= maxConflicts:
				more[*c.Owner]++
			default:
				conflicts[*c.Owner] = append(conflicts[*c.Owner], why.Conflict{Node: name, BpfNodeConflict: c})
			}
		}
	}
	var overview why.Overview
	for owner, d := range f.Objects {
		switch {
		case d.Problem != "":
			overview.Objects = append(overview.Objects, why.Brief{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name, State: why.Failed, Message: d.Problem})
		case d.User == nil:
			overview.Objects = append(overview.Objects, why.BriefOfPolicy(owner.Kind, owner.Name, d.Conditions, d.Named))
		default:
			overview.Objects = append(overview.Objects, why.BriefOf(owner.Kind, d.User, conflicts[owner]))
		}
	}
	overview.Sort()
	briefs := []Brief{}
	for _, b := range overview.Objects {
		owner := v1alpha1.BpfNodeOwner{Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}
		brief := Brief{Brief: b, Image: image(f.Objects[owner]), MoreConflicts: more[owner]}
		if user := f.Objects[owner].User; user != nil {
			brief.Counts = user.GetStatus().Nodes
			if r := user.GetStatus().Rollout; r != nil {
				brief.Rollout = r.State
			}
		}
		briefs = append(briefs, brief)
	}
	return briefs
}

// ConflictsOf returns the conflicts of an object on all nodes.
func (f *Facts) ConflictsOf(owner v1alpha1.BpfNodeOwner) []why.Conflict {
	var found []why.Conflict
	for _, name := range slices.Sorted(maps.Keys(f.Inventories)) {
		for _, c := range f.Inventories[name].Conflicts {
			if c.Owner != nil && *c.Owner == owner {
				found = append(found, why.Conflict{Node: name, BpfNodeConflict: c})
			}
		}
	}
	return found
}

// changes returns what happened since a time, the latest first: Events, and programs that were loaded.
func (c *counted) changes(since time.Time) []Change {
	changes := c.loads(since)
	for _, e := range c.facts.Events {
		if !e.At.Before(since) && c.selects(e.Owner) {
			changes = append(changes, Change{At: e.At, Owner: &e.Owner, What: e.Reason, Message: e.Message, Warning: e.Warning})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.What, b.What), strings.Compare(a.Message, b.Message))
	})
	changes = merge(changes)
	return changes[:min(len(changes), maxChanges)]
}

// loads returns the selected programs that were loaded since a time, except for dispatchers.
func (c *counted) loads(since time.Time) []Change {
	type loads struct {
		at    int64
		nodes map[string]struct{}
	}
	loaded := map[unique.Handle[Sort]]*loads{}
	for name, r := range c.facts.Inventories {
		for _, p := range r.Programs {
			if p.At < since.Unix() || c.rowOf[p.Sort] == nil {
				continue
			}
			l := loaded[p.Sort]
			if l == nil {
				l = &loads{nodes: map[string]struct{}{}}
				loaded[p.Sort] = l
			}
			l.at, l.nodes[name] = max(l.at, p.At), struct{}{}
		}
	}
	var changes []Change
	for h, l := range loaded {
		s := h.Value()
		is := Change{At: time.Unix(l.at, 0), What: "Loaded", Message: s.Type + " program " + s.Name}
		switch {
		case s.Owner.Name != "":
			is.Owner = &s.Owner
		case s.Bpfman:
			continue
		default:
			is.Message += " of " + cmp.Or(s.Holder, "an unknown process")
		}
		if len(l.nodes) == 1 {
			for is.Node = range l.nodes {
				is.Message += " on node " + is.Node
			}
		} else {
			is.Message += fmt.Sprintf(" on %d nodes", len(l.nodes))
		}
		changes = append(changes, is)
	}
	return changes
}

// merge makes one change of those in a row in which the same happened to many objects of a kind, as after a reboot.
func merge(changes []Change) []Change {
	var merged []Change
	for i := 0; i < len(changes); {
		first, next := changes[i], i+1
		for next < len(changes) && first.Owner != nil && changes[next].Owner != nil &&
			changes[next].What == first.What && changes[next].Owner.Kind == first.Owner.Kind && changes[next].Warning == first.Warning {
			next++
		}
		if next-i < few {
			merged = append(merged, changes[i:next]...)
		} else {
			first.More = next - i - 1
			merged = append(merged, first)
		}
		i = next
	}
	return append([]Change{}, merged...)
}
