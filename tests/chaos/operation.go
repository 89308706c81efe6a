// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Step is one change of the cluster.
type Step struct {
	Do string `json:"do,omitempty"`
	// Target is what is changed: an object, a pod, an interface, a component, or a key.
	Target string `json:"target,omitempty"`
	Node   string `json:"node,omitempty"`
	Value  string `json:"value,omitempty"`
	// Object and Pod are the new state.
	Object *Object `json:"object,omitempty"`
	Pod    *Pod    `json:"pod,omitempty"`
	// After is the delay before the step. Lasts is the duration of a fault, which overlaps with the next steps.
	// Both are in milliseconds.
	After int `json:"after,omitempty"`
	Lasts int `json:"lasts,omitempty"`
	// Settled ends a burst.
	Settled bool `json:"settled,omitempty"`
}

// Operation is an operation of users or administrators.
type Operation struct {
	Name   string
	Weight int
	// Draw draws a step. It returns false if no step of this kind is possible.
	Draw func(r *rand.Rand, m *Model) (Step, bool)
	// Apply changes the model as the step changes what is wanted. It returns false if the step isn't possible,
	// because steps of a shortened sequence can lack what they need.
	Apply func(m *Model, s Step) bool
}

// Limits of the numbers of things, and the names of things.
const (
	mostObjects    = 10
	mostPods       = 8
	mostInterfaces = 3
)

var (
	zones  = []string{"", "a", "b"}
	groups = []string{"one", "two"}
	// tracepoints are tracepoints that rarely run. Each can have 64 programs on the whole machine. Other tests
	// that can run at the same time don't use them.
	tracepoints = []string{"syscalls/sys_enter_acct", "syscalls/sys_enter_quotactl", "syscalls/sys_enter_ustat", "syscalls/sys_enter_vhangup"}
	components  = []string{"agent", "csi", "inspector", "daemon", "operator"}
)

// Operations contains all operations.
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
		if o == nil || o.Kind != s.Object.Kind || m.changed[labels] {
			return false
		}
		// The same revision under another policy isn't rolled out again.
		if o.previous != nil && o.Variant == s.Object.Variant || !m.change("object/"+s.Object.Name) {
			return false
		}
		m.changed[selectors] = true
		if s.Object.Staged && s.Object.variant().Bad {
			m.changed[withoutReboot] = true
		}
		changed := *s.Object
		changed.held = o.held
		m.Objects[s.Object.Name] = &changed
		return true
	}},
	{"roll out a revision that fails", 12, drawFailing, func(m *Model, s Step) bool {
		o := m.Objects[s.Object.Name]
		if o == nil || o.Kind != s.Object.Kind || !m.mayFail(o) || s.Object.Zone != "" || !m.change("policies") {
			return false
		}
		m.changed["object/"+s.Object.Name], m.changed[withoutReboot] = true, true
		failing := *s.Object
		failing.held, failing.previous = o.held, o
		m.Objects[s.Object.Name] = &failing
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
	{"create or delete the RolloutPolicies", 3, func(r *rand.Rand, m *Model) (Step, bool) {
		wanted := !m.Staged || r.IntN(4) == 0
		return Step{Value: map[bool]string{true: "delete", false: "create"}[m.Staged]}, wanted && !m.changed["policies"]
	}, func(m *Model, s Step) bool {
		if m.Staged != (s.Value == "delete") || !m.change("policies") {
			return false
		}
		m.changed[withoutReboot] = true
		m.Staged = !m.Staged
		for _, o := range m.Objects { // without a policy, all nodes get the newest revision
			o.previous = nil
		}
		return true
	}},
	{"cut off a node", 2, func(r *rand.Rand, m *Model) (Step, bool) {
		node := m.Nodes[r.IntN(len(m.Nodes))]
		name, ok := unused(m, "object/", cutting, m.Objects, 1)
		return Step{Object: &Object{Kind: "TcxProgram", Name: name, Priority: 1, CutsOff: node}}, ok && len(m.changed) == 0 && m.Can["TCX"].Attaches
	}, func(m *Model, s Step) bool {
		if m.Objects[s.Object.Name] != nil || len(m.changed) > 0 {
			return false
		}
		m.changed["object/"+s.Object.Name], m.changed[alone] = true, true
		created := *s.Object
		m.Objects[s.Object.Name] = &created
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
		// An object that isn't selected for a moment may or may not be reloaded.
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

// Keys for everything of a kind that a burst has changed.
const (
	labels    = "labels of nodes"
	selectors = "what the labels of nodes decide about"
	// alone means that nothing else changes: a node that is cut off undoes all changes that it hasn't confirmed.
	alone = "all that isn't confirmed"
	// withoutReboot means that no node reboots: what it loads afterwards depends on whether it has got the revision.
	withoutReboot = "the revisions of nodes"
)

// mayRead reports whether the time at which a pod gets its volume doesn't matter: this burst doesn't unload
// anything of the object.
func (m *Model) mayRead(p *Pod) bool {
	o := m.Objects[p.Of]
	return p.Of == "" || (o != nil && !m.changed[labels] && (o.held == nil || !m.changed["object/"+p.Of]))
}

// mayFail reports whether a revision of the object that fails can be rolled out: all nodes have the one before, and the
// policy's canary is among them.
func (m *Model) mayFail(o *Object) bool {
	return m.Rollout(o) == v1alpha1.RolloutComplete && o.OnFailure == "" && o.Zone == "" && !o.variant().Bad && !m.changed["object/"+o.Name]
}

// change reports whether something can be changed. Each thing is changed at most once in a burst, so that the
// result doesn't depend on how far the cluster has applied the previous change.
func (m *Model) change(what string) bool {
	if m.changed[what] {
		return false
	}
	m.changed[what] = true
	return true
}

// unchanged returns the names that can be changed. Names with the prefix "steady" can't.
func (m *Model) unchanged(prefix string, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return m.changed[prefix+name] || strings.HasPrefix(name, steady) })
}

// cutting is the prefix of the names of objects that cut off a node. They are only created and deleted.
const cutting = "cut"

// steady is the prefix of the names of things that stay during a whole run.
const steady = "steady"

func pick(r *rand.Rand, names []string) (string, bool) {
	if len(names) == 0 {
		return "", false
	}
	return names[r.IntN(len(names))], true
}

// unused returns a name that isn't in use, and wasn't in use in this burst.
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

// oftenGood is the number of good bytecodes among ten that are drawn.
const oftenGood = 8

// parts draw the fields of an object that its kind has.
var parts = []func(*rand.Rand, *Object){
	func(r *rand.Rand, o *Object) {
		o.Variant = drawVariant(r, o.Kind, r.IntN(10) >= oftenGood && len(variantsOf(o.Kind, true)) > 0)
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
	func(r *rand.Rand, o *Object) { o.Staged = r.IntN(3) == 0 },
}

// variantsOf returns the good or bad variants of a kind.
func variantsOf(kind string, bad bool) []int {
	var found []int
	for i, v := range shapeOf(kind).Variants {
		if v.Bad == bad {
			found = append(found, i)
		}
	}
	return found
}

func drawVariant(r *rand.Rand, kind string, bad bool) int {
	variants := variantsOf(kind, bad)
	return variants[r.IntN(len(variants))]
}

func drawFailing(r *rand.Rand, m *Model) (Step, bool) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(m.Objects)), func(name string) bool {
		o := m.Objects[name]
		return !m.mayFail(o) || len(variantsOf(o.Kind, true)) == 0
	})
	name, ok := pick(r, names)
	if !ok {
		return Step{}, false
	}
	failing := *m.Objects[name]
	failing.held = nil
	failing.Variant = drawVariant(r, failing.Kind, true)
	failing.OnFailure = []v1alpha1.RolloutOnFailure{v1alpha1.RolloutHalt, v1alpha1.RolloutUndo}[r.IntN(2)]
	return Step{Object: &failing}, true
}

func drawChange(r *rand.Rand, m *Model) (Step, bool) {
	name, ok := pick(r, m.unchanged("object/", slices.Sorted(maps.Keys(m.Objects))))
	if !ok || m.Objects[name].CutsOff != "" {
		return Step{}, false
	}
	changed := *m.Objects[name]
	changed.held, changed.previous, changed.OnFailure = nil, nil, ""
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
