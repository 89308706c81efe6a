// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package chaos tests bpfman at random, against a model: operations of users and
// administrators and faults of all components are drawn from a seed and done on a real
// cluster in bursts; after each burst, the cluster has to become what the model says, and
// nothing else may be left.
//
// What is wanted and expected is decided here without a cluster (model.go, shape.go,
// operation.go, fault.go, sequence.go); the tests do it and look at what came of it.
package chaos

import (
	"maps"
	"slices"
)

// Ability is what the daemon can do with a type of program on the nodes' kernel.
type Ability struct{ Loads, Attaches bool }

// Model is what a cluster should have.
type Model struct {
	// Can has the abilities by the types that tests/node tries.
	Can map[string]Ability
	// Nodes are the cluster's, the one of the control plane first.
	Nodes []string
	// Zones are the nodes' labels, "" for none.
	Zones map[string]string
	// Interfaces that are there, as node/name.
	Interfaces map[string]bool
	Objects    map[string]*Object
	Pods       map[string]*Pod
	// Config has the values of the ConfigMap that differ from what was installed.
	Config map[string]string
	// Next are the components that run their other image.
	Next map[string]bool

	// Of the present burst: what it has changed, and the nodes that it rebooted.
	changed, rebooted map[string]bool
	// serial numbers what is loaded.
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

	// held is what each node has loaded for it.
	held map[string]Holding
}

// Holding is what a node has loaded for an object.
type Holding struct {
	// Serial is another number for each load: as long as it stays, the programs have to be
	// the very same.
	Serial int
	// Load is what was loaded.
	Load loadKey
	// Functions are its programs, and Maps the maps that they have of their own.
	Functions, Maps []string
}

// loadKey is what a program can't be given without loading it again.
type loadKey struct {
	variant int
	marker  byte
}

// Pod is a pod that reads the map of an object, or, without one, one that programs are
// attached in.
type Pod struct {
	Name  string `json:"name"`
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Of    string `json:"of,omitempty"`
	Map   string `json:"map,omitempty"`

	// started tells that it has its volume, which it keeps; the volume follows what is loaded
	// again, and has the map of the load serial.
	started bool
	serial  int
}

// NewModel is a cluster of these nodes, without any object.
func NewModel(can map[string]Ability, nodes []string) *Model {
	return &Model{
		Can: can, Nodes: nodes,
		Zones: map[string]string{}, Interfaces: map[string]bool{}, Objects: map[string]*Object{}, Pods: map[string]*Pod{},
		Config: map[string]string{}, Next: map[string]bool{}, changed: map[string]bool{}, rebooted: map[string]bool{},
	}
}

// Point is a place that a program should be attached to.
type Point struct {
	Name string
	// Attached tells whether it can be.
	Attached bool
	// Interface is that of the host it is at, if any.
	Interface string
}

// Expected is what a node should have for an object.
type Expected struct {
	Selected bool
	// Failed tells that the node reports a failure, Idle that there is no container.
	Failed, Idle bool
	// Loaded tells whether what is wanted is loaded; else a predecessor may be.
	Loaded bool
	// Points are those of each member, while it is loaded.
	Points [][]Point
}

func (o *Object) variant() *Variant { return &shapeOf(o.Kind).Variants[o.Variant] }

func (o *Object) key() loadKey {
	key := loadKey{variant: o.Variant}
	if o.variant().Global != "" {
		key.marker = o.Marker
	}
	return key
}

// Expect is what the node should have for the object.
func (m *Model) Expect(o *Object, node string) Expected {
	e := Expected{Selected: o.Zone == "" || o.Zone == m.Zones[node]}
	if !e.Selected {
		return e
	}
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

// podPoints are those of a namespaced object: in each pod of its group that runs.
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

// Ready tells whether a pod should be.
func (m *Model) Ready(p *Pod) bool { return p.Of == "" || p.started }

// KeepsMaps tells whether a pod's volume has a map of what isn't loaded any more.
func (m *Model) KeepsMaps() bool {
	for _, p := range m.Pods {
		if o := m.Objects[p.Of]; p.started && (o == nil || o.held[p.Node].Serial != p.serial) {
			return true
		}
	}
	return false
}

// Held is what the node has loaded for the object, which is nothing for an empty Serial.
func (o *Object) Held(node string) Holding { return o.held[node] }

// Settle ends a burst: the cluster has become what was wanted.
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
	e := m.Expect(o, node)
	switch held, there := o.held[node]; {
	case !e.Selected:
		delete(o.held, node)
	case !e.Loaded: // what was loaded before goes on
	case there && held.Load == o.key():
	default:
		m.serial++
		holding := Holding{Serial: m.serial, Load: o.key()}
		for _, member := range o.variant().Members {
			holding.Functions = append(holding.Functions, member.Function)
			if member.Map != "" {
				holding.Maps = append(holding.Maps, member.Map)
			}
		}
		o.held[node] = holding
	}
}
