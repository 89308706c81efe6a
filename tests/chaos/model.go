// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package chaos tests bpfman randomly, against a model. It draws operations of users and
// administrators, and faults of all components, from a seed, and applies them to a real
// cluster in bursts. After each burst, the cluster has to reach the state of the model, and
// nothing else can be left.
//
// The non-test files decide what is wanted and expected, without a cluster (model.go,
// shape.go, operation.go, fault.go, sequence.go). The tests apply it to a cluster, and check
// the result.
package chaos

import (
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Ability says what the daemon can do with a type of program on the nodes' kernel.
type Ability struct{ Loads, Attaches bool }

// Model is the state that a cluster should have.
type Model struct {
	// Can contains the abilities, by the types that tests/node tries.
	Can map[string]Ability
	// Nodes are the nodes of the cluster. The first is the one with the control plane.
	Nodes []string
	// Zones are the values of the nodes' labels, or "" for none.
	Zones map[string]string
	// Interfaces are the existing interfaces, as node/name.
	Interfaces map[string]bool
	Objects    map[string]*Object
	Pods       map[string]*Pod
	// Config contains the values of the ConfigMap that differ from the installation.
	Config map[string]string
	// Next contains the components that run their other image.
	Next map[string]bool
	// Staged means that there are RolloutPolicies for objects that are Staged.
	Staged bool

	// What the current burst has changed, and the nodes that it has rebooted.
	changed, rebooted map[string]bool
	// serial is the number of the last load.
	serial int
}

// Object is a user's object.
type Object struct {
	Kind        string   `json:"kind"`
	Name        string   `json:"name"`
	Variant     int      `json:"variant"`
	Zone        string   `json:"zone,omitempty"`
	Interfaces  []string `json:"interfaces,omitempty"`
	Tracepoints []string `json:"tracepoints,omitempty"`
	Priority    int32    `json:"priority,omitempty"`
	Marker      byte     `json:"marker,omitempty"`
	Group       string   `json:"group,omitempty"`
	Detached    bool     `json:"detached,omitempty"`
	// Staged means that a RolloutPolicy matches the object.
	Staged bool `json:"staged,omitempty"`
	// OnFailure says what the policy does, because its revision fails. Otherwise, it is "".
	OnFailure v1alpha1.RolloutOnFailure `json:"onFailure,omitempty"`
	// CutsOff is the node that the object's program cuts off from the API server, or "".
	CutsOff string `json:"cutsOff,omitempty"`

	// held is what each node has loaded for the object.
	held map[string]Holding
	// previous is the revision before, if the rollout of this one has failed.
	previous *Object
}

// Holding is what a node has loaded for an object.
type Holding struct {
	// Serial is different for each load. As long as it doesn't change, the programs have to
	// stay the same.
	Serial int
	// Load is what was loaded.
	Load loadKey
	// Functions are the functions of its programs. Maps are the maps that belong to them.
	Functions, Maps []string
}

// loadKey contains what can't be changed without a reload.
type loadKey struct {
	variant int
	marker  byte
}

// Pod is a pod that reads the map of an object, or, without an object, a pod in which
// programs are attached.
type Pod struct {
	Name  string `json:"name"`
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Of    string `json:"of,omitempty"`
	Map   string `json:"map,omitempty"`

	// started means that the pod has its volume. The volume follows reloads, and contains
	// the map of the load with the number serial.
	started bool
	serial  int
}

// NewModel returns the model of a cluster with these nodes, without objects.
func NewModel(can map[string]Ability, nodes []string) *Model {
	return &Model{
		Can: can, Nodes: nodes,
		Zones: map[string]string{}, Interfaces: map[string]bool{}, Objects: map[string]*Object{}, Pods: map[string]*Pod{},
		Config: map[string]string{}, Next: map[string]bool{}, changed: map[string]bool{}, rebooted: map[string]bool{},
	}
}

// Point is a place to which a program should be attached.
type Point struct {
	Name string
	// Attached says whether it can be attached there.
	Attached bool
	// Interface is the host's interface, if the point is at one.
	Interface string
}

// Expected is what a node should have for an object.
type Expected struct {
	Selected bool
	// Failed means that the node reports a failure. Idle means that there is nothing to attach to.
	Failed, Idle bool
	// Loaded says whether the wanted program is loaded. Otherwise, an earlier one can be
	// loaded.
	Loaded bool
	// Points are the points of each member, while it is loaded.
	Points [][]Point
}

func (o *Object) variant() *Variant {
	if o.CutsOff != "" {
		return &cutsOff
	}
	return &shapeOf(o.Kind).Variants[o.Variant]
}

// Members returns the programs of the object.
func (o *Object) Members() []Member { return o.variant().Members }

func (o *Object) key() loadKey {
	key := loadKey{variant: o.Variant}
	if o.variant().Global != "" {
		key.marker = o.Marker
	}
	return key
}

// canary is the node that gets a revision that fails.
func (m *Model) canary() string { return m.Nodes[len(m.Nodes)-1] }

// Runs returns the object in the revision that the node is to run.
func (m *Model) Runs(o *Object, node string) *Object {
	if o.previous == nil || o.OnFailure == v1alpha1.RolloutHalt && node == m.canary() {
		return o
	}
	return o.previous
}

// Rollout returns the state of the object's rollout, or "" if it isn't rolled out in steps.
func (m *Model) Rollout(o *Object) v1alpha1.RolloutState {
	switch {
	case !o.Staged || !m.Staged:
		return ""
	case o.previous == nil:
		return v1alpha1.RolloutComplete
	case o.OnFailure == v1alpha1.RolloutUndo:
		return v1alpha1.RolloutUndone
	}
	return v1alpha1.RolloutHalted
}

// Expect returns what the node should have for the object.
func (m *Model) Expect(o *Object, node string) Expected {
	e := Expected{Selected: (o.Zone == "" || o.Zone == m.Zones[node]) && (o.CutsOff == "" || o.CutsOff == node)}
	if !e.Selected {
		return e
	}
	o = m.Runs(o, node)
	variant := o.variant()
	e.Loaded = !variant.Bad
	for _, member := range variant.Members {
		e.Loaded = e.Loaded && m.Can[member.Type].Loads
	}
	e.Failed = !e.Loaded
	if !e.Loaded {
		return e
	}
	e.Idle = true
	for _, member := range variant.Members {
		points := m.points(o, member, node)
		e.Points = append(e.Points, points)
		e.Failed = e.Failed || slices.ContainsFunc(points, func(p Point) bool { return !p.Attached })
		e.Idle = e.Idle && len(points) == 0 && shapeOf(o.Kind).Namespaced && !o.Detached
	}
	return e
}

func (m *Model) points(o *Object, member Member, node string) []Point {
	if o.Detached {
		return nil
	}
	can := m.Can[member.Type].Attaches
	if shapeOf(o.Kind).Namespaced {
		return m.podPoints(o, member, node)
	}
	switch member.Type {
	case "TCX", "TC", "XDP":
		points := make([]Point, 0, len(o.Interfaces))
		for _, name := range o.Interfaces {
			what := " ingress"
			if member.Type == "XDP" {
				what = ""
			}
			points = append(points, Point{name + what, can && m.Interfaces[node+"/"+name], name})
		}
		return points
	case "Tracepoint":
		points := make([]Point, 0, len(o.Tracepoints))
		for _, name := range o.Tracepoints {
			points = append(points, Point{name, can, ""})
		}
		return points
	case "Uprobe":
		return []Point{{libFunction + " in " + library, can, ""}}
	case "Kprobe":
		return []Point{{wakeUp, can, ""}}
	default:
		return []Point{{kernelFunction, can, ""}}
	}
}

// podPoints returns the points of a namespaced object, which are in each running pod of its
// group.
func (m *Model) podPoints(o *Object, member Member, node string) []Point {
	var points []Point
	for _, name := range slices.Sorted(maps.Keys(m.Pods)) {
		pod := m.Pods[name]
		if pod.Node != node || pod.Of != "" || pod.Group != o.Group {
			continue
		}
		can := m.Can[member.Type].Attaches
		switch member.Type {
		case "TCX", "TC":
			points = append(points, Point{podInterface + " ingress in pod " + Space + "/" + name, can, ""})
		case "XDP":
			points = append(points, Point{podInterface + " in pod " + Space + "/" + name, can, ""})
		default:
			points = append(points, Point{userFunction + " in " + userTarget + " of container " + Space + "/" + name + "/" + targetName, can, ""})
		}
	}
	return points
}

// Ready reports whether a pod should be ready.
func (m *Model) Ready(p *Pod) bool { return p.Of == "" || p.started }

// KeepsMaps reports whether a pod's volume contains a map of a program that is no longer
// loaded.
func (m *Model) KeepsMaps() bool {
	for _, p := range m.Pods {
		if o := m.Objects[p.Of]; p.started && (o == nil || o.held[p.Node].Serial != p.serial) {
			return true
		}
	}
	return false
}

// Held returns what the node has loaded for the object. An empty Serial means that nothing
// is loaded.
func (o *Object) Held(node string) Holding { return o.held[node] }

// Settle ends a burst: the cluster has reached the wanted state.
func (m *Model) Settle() {
	for _, name := range slices.Sorted(maps.Keys(m.Objects)) {
		o := m.Objects[name]
		for _, node := range m.Nodes {
			m.settle(o, node)
		}
	}
	for _, p := range m.Pods {
		if m.rebooted[p.Node] {
			p.started = false
		}
		if o := m.Objects[p.Of]; o != nil && slices.Contains(o.held[p.Node].Maps, p.Map) {
			p.started, p.serial = true, o.held[p.Node].Serial
		}
	}
	m.changed, m.rebooted = map[string]bool{}, map[string]bool{}
}

func (m *Model) settle(o *Object, node string) {
	if o.held == nil {
		o.held = map[string]Holding{}
	}
	if m.rebooted[node] {
		delete(o.held, node)
	}
	e, runs := m.Expect(o, node), m.Runs(o, node)
	switch held, there := o.held[node]; {
	case !e.Selected:
		delete(o.held, node)
	case !e.Loaded: // what was loaded before stays
	case there && held.Load == runs.key():
	default:
		m.serial++
		holding := Holding{Serial: m.serial, Load: runs.key(), Maps: slices.Clone(runs.variant().Maps)}
		for _, member := range runs.variant().Members {
			holding.Functions = append(holding.Functions, member.Function)
			if member.Map != "" {
				holding.Maps = append(holding.Maps, member.Map)
			}
		}
		o.held[node] = holding
	}
}
