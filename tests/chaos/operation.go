// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Step is one thing that is done to the cluster.
type Step struct {
	Do string `json:"do"`
	// Target is what it is done to: an object, a pod, an interface, a component, a key.
	Target string `json:"target,omitempty"`
	Node   string `json:"node,omitempty"`
	Value  string `json:"value,omitempty"`
	// Object and Pod are as they should be from then on.
	Object *Object `json:"object,omitempty"`
	Pod    *Pod    `json:"pod,omitempty"`
	// After is how long to wait before, and Lasts how long a fault goes on beside the steps
	// that follow; both in milliseconds.
	After int `json:"after,omitempty"`
	Lasts int `json:"lasts,omitempty"`
	// Settled ends a burst.
	Settled bool `json:"settled,omitempty"`
}

// Operation is something that users and administrators do.
type Operation struct {
	Name   string
	Weight int
	// Draw makes a step, unless nothing of the kind can be done.
	Draw func(r *rand.Rand, m *Model) (Step, bool)
	// Apply changes the model as the step changes what is wanted, unless it can't be done:
	// of a sequence that is shortened, steps lose what they need.
	Apply func(m *Model, s Step) bool
}

// Bounds of what there is at a time, and the names that things take.
const (
	mostObjects    = 10
	mostPods       = 8
	mostInterfaces = 3
)

var (
	zones  = []string{"", "a", "b"}
	groups = []string{"one", "two"}
	// tracepoints hardly ever run, and take 64 programs of the whole machine each. No other test that may run beside this
	// one uses them.
	tracepoints = []string{"syscalls/sys_enter_acct", "syscalls/sys_enter_quotactl", "syscalls/sys_enter_ustat", "syscalls/sys_enter_vhangup"}
	components  = []string{"agent", "csi", "inspector", "daemon", "operator"}
)

// Operations has all of them.
var Operations = []Operation{
	{"create an object", 12, drawCreate, func(m *Model, s Step) bool {
		if m.Objects[s.Object.Name] != nil || !m.change("object/"+s.Object.Name) {
			return false
		}
		created := *s.Object
		m.Objects[s.Object.Name] = &created
		return true
	}},
	{"change an object", 14, drawChange, func(m *Model, s Step) bool {
		o := m.Objects[s.Object.Name]
		if o == nil || o.Kind != s.Object.Kind || m.changed[labels] || !m.change("object/"+s.Object.Name) {
			return false
		}
		m.changed[selectors] = true
		changed := *s.Object
		changed.held = o.held
		m.Objects[s.Object.Name] = &changed
		return true
	}},
	{"delete an object", 6, func(r *rand.Rand, m *Model) (Step, bool) {
		name, ok := pick(r, m.unchanged("object/", slices.Sorted(maps.Keys(m.Objects))))
		if !ok {
			return Step{}, false
		}
		return Step{Target: name, Object: &Object{Kind: m.Objects[name].Kind, Name: name}}, true
	}, func(m *Model, s Step) bool {
		if m.Objects[s.Target] == nil || !m.change("object/"+s.Target) {
			return false
		}
		delete(m.Objects, s.Target)
		return true
	}},
	{"create an invalid object", 2, func(r *rand.Rand, _ *Model) (Step, bool) {
		shape := shapes[r.IntN(len(shapes))]
		return Step{Object: &Object{Kind: shape.Kind, Name: "invalid", Interfaces: []string{interfaceName(0)}, Group: groups[0], Priority: 5000}}, true
	}, func(*Model, Step) bool { return true }},
	{"label a node", 4, func(r *rand.Rand, m *Model) (Step, bool) {
		node := m.Nodes[r.IntN(len(m.Nodes))]
		value := zones[r.IntN(len(zones))]
		return Step{Node: node, Value: value}, value != m.Zones[node] && !m.changed["node/"+node]
	}, func(m *Model, s Step) bool {
		// An object that isn't selected in between may be loaded again, or not.
		if m.changed[selectors] || !m.change("node/"+s.Node) {
			return false
		}
		m.changed[labels] = true
		m.Zones[s.Node] = s.Value
		return true
	}},
	{"create a pod", 8, drawPod, func(m *Model, s Step) bool {
		if m.Pods[s.Pod.Name] != nil || !m.mayRead(s.Pod) || !m.change("pod/"+s.Pod.Name) {
			return false
		}
		if s.Pod.Of != "" {
			m.changed["object/"+s.Pod.Of] = true
			m.changed[selectors] = true
		}
		created := *s.Pod
		m.Pods[s.Pod.Name] = &created
		return true
	}},
	{"delete a pod", 5, func(r *rand.Rand, m *Model) (Step, bool) {
		name, ok := pick(r, m.unchanged("pod/", slices.Sorted(maps.Keys(m.Pods))))
		return Step{Target: name}, ok
	}, func(m *Model, s Step) bool {
		if m.Pods[s.Target] == nil || !m.change("pod/"+s.Target) {
			return false
		}
		delete(m.Pods, s.Target)
		return true
	}},
	{"add an interface", 6, drawInterface(false), func(m *Model, s Step) bool { return m.setInterface(s, true) }},
	{"remove an interface", 3, drawInterface(true), func(m *Model, s Step) bool { return m.setInterface(s, false) }},
	{"edit the ConfigMap", 1, func(r *rand.Rand, m *Model) (Step, bool) {
		key, value := "bpfman."+[]string{"agent", "csi", "inspector"}[r.IntN(3)]+".log.level", []string{"info", "debug"}[r.IntN(2)]
		return Step{Target: key, Value: value}, m.Config[key] != value && !m.changed["config"]
	}, func(m *Model, s Step) bool {
		if !m.change("config") {
			return false
		}
		m.Config[s.Target] = s.Value
		return true
	}},
	{"put nonsense into the ConfigMap, and take it out", 1, func(r *rand.Rand, m *Model) (Step, bool) {
		keys := []string{"bpfman.agent.log.level", "bpfman.agent.image", "bpfman.nodeselector", "bpfman.tolerations"}
		return Step{Target: keys[r.IntN(len(keys))]}, !m.changed["config"]
	}, func(m *Model, _ Step) bool { return m.change("config") }},
	{"upgrade to the other tag, or back", 2, func(r *rand.Rand, m *Model) (Step, bool) {
		component := components[r.IntN(len(components))]
		return Step{Target: component, Value: map[bool]string{true: "latest", false: "next"}[m.Next[component]]}, !m.changed["config"]
	}, func(m *Model, s Step) bool {
		if !m.change("config") {
			return false
		}
		m.Next[s.Target] = s.Value == "next"
		return true
	}},
}

// What stands for any of its kind among what a burst has changed.
const (
	labels    = "labels of nodes"
	selectors = "what the labels of nodes decide about"
)

// mayRead tells whether it doesn't matter how soon a pod gets its volume: nothing of the
// object's that is loaded goes in this burst.
func (m *Model) mayRead(p *Pod) bool {
	o := m.Objects[p.Of]
	return p.Of == "" || (o != nil && !m.changed[labels] && (o.held == nil || !m.changed["object/"+p.Of]))
}

// change tells whether a thing may be changed: once in a burst, so that what comes of it
// doesn't depend on how far the cluster has come with the change before.
func (m *Model) change(what string) bool {
	if m.changed[what] {
		return false
	}
	m.changed[what] = true
	return true
}

// unchanged are those of the names that may be changed; what begins with "steady" stays.
func (m *Model) unchanged(prefix string, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return m.changed[prefix+name] || strings.HasPrefix(name, steady) })
}

// steady is how the names of things begin that stay during a whole run.
const steady = "steady"

func pick(r *rand.Rand, names []string) (string, bool) {
	if len(names) == 0 {
		return "", false
	}
	return names[r.IntN(len(names))], true
}

// unused is a name that isn't taken, and wasn't in this burst.
func unused[T any](m *Model, kind, prefix string, taken map[string]T, most int) (string, bool) {
	for i := range most {
		name := fmt.Sprintf("%s%d", prefix, i)
		if _, there := taken[name]; !there && !m.changed[kind+name] {
			return name, true
		}
	}
	return "", false
}

func interfaceName(i int) string { return fmt.Sprintf("chaos%d", i) }

func drawCreate(r *rand.Rand, m *Model) (Step, bool) {
	name, ok := unused(m, "object/", "o", m.Objects, mostObjects)
	if !ok {
		return Step{}, false
	}
	sum := 0
	for _, s := range shapes {
		sum += s.Weight
	}
	n, i := r.IntN(sum), 0
	for n >= shapes[i].Weight {
		n -= shapes[i].Weight
		i++
	}
	o := &Object{Kind: shapes[i].Kind, Name: name}
	for _, part := range parts {
		part(r, o)
	}
	return Step{Object: o}, true
}

// oftenGood is how many of ten bytecodes are drawn among the good ones.
const oftenGood = 8

// parts draw what an object's fields may be, those that its kind has.
var parts = []func(*rand.Rand, *Object){
	func(r *rand.Rand, o *Object) {
		variants := shapeOf(o.Kind).Variants
		var good, bad []int
		for i, v := range variants {
			if v.Bad {
				bad = append(bad, i)
			} else {
				good = append(good, i)
			}
		}
		if r.IntN(10) < oftenGood || len(bad) == 0 {
			o.Variant = good[r.IntN(len(good))]
		} else {
			o.Variant = bad[r.IntN(len(bad))]
		}
	},
	func(r *rand.Rand, o *Object) { o.Zone = zones[r.IntN(len(zones))*r.IntN(2)] },
	func(r *rand.Rand, o *Object) {
		o.Interfaces = nil
		for i := range mostInterfaces {
			if r.IntN(2) == 0 || (i == mostInterfaces-1 && o.Interfaces == nil) {
				o.Interfaces = append(o.Interfaces, interfaceName(i))
			}
		}
	},
	func(r *rand.Rand, o *Object) {
		o.Tracepoints = nil
		for i, name := range tracepoints {
			if r.IntN(2) == 0 || (i == len(tracepoints)-1 && o.Tracepoints == nil) {
				o.Tracepoints = append(o.Tracepoints, name)
			}
		}
	},
	func(r *rand.Rand, o *Object) { o.Priority = 1 + r.Int32N(900) },
	func(r *rand.Rand, o *Object) { o.Marker = byte(r.IntN(256)) },
	func(r *rand.Rand, o *Object) { o.Group = groups[r.IntN(len(groups))] },
	func(r *rand.Rand, o *Object) { o.Detached = r.IntN(6) == 0 },
}

func drawChange(r *rand.Rand, m *Model) (Step, bool) {
	name, ok := pick(r, m.unchanged("object/", slices.Sorted(maps.Keys(m.Objects))))
	if !ok {
		return Step{}, false
	}
	changed := *m.Objects[name]
	changed.held = nil
	for range 1 + r.IntN(2) {
		parts[r.IntN(len(parts))](r, &changed)
	}
	return Step{Object: &changed}, true
}

func drawPod(r *rand.Rand, m *Model) (Step, bool) {
	name, ok := unused(m, "pod/", "p", m.Pods, mostPods)
	if !ok {
		return Step{}, false
	}
	pod := &Pod{Name: name, Node: m.Nodes[r.IntN(len(m.Nodes))], Group: groups[r.IntN(len(groups))]}
	if r.IntN(2) == 0 {
		return Step{Pod: pod}, true
	}
	of, ok := pick(r, slices.Sorted(maps.Keys(m.Objects)))
	if !ok {
		return Step{Pod: pod}, true
	}
	var names []string
	for _, member := range m.Objects[of].variant().Members {
		if member.Map != "" {
			names = append(names, member.Map)
		}
	}
	if chosen, ok := pick(r, names); ok {
		pod.Of, pod.Map, pod.Group = of, chosen, ""
	}
	return Step{Pod: pod}, true
}

func drawInterface(there bool) func(*rand.Rand, *Model) (Step, bool) {
	return func(r *rand.Rand, m *Model) (Step, bool) {
		node, name := m.Nodes[r.IntN(len(m.Nodes))], interfaceName(r.IntN(mostInterfaces))
		key := node + "/" + name
		return Step{Node: node, Target: name}, m.Interfaces[key] == there && !m.changed["interface/"+key]
	}
}

func (m *Model) setInterface(s Step, there bool) bool {
	key := s.Node + "/" + s.Target
	if m.Interfaces[key] == there || !m.change("interface/"+key) {
		return false
	}
	m.Interfaces[key] = there
	return true
}
