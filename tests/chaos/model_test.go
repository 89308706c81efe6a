// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import "testing"

// TestModel follows an object through its possible states.
func TestModel(t *testing.T) {
	m := NewModel(abilities(), []string{"node"})
	o := Object{Kind: "TcxProgram", Name: "o", Interfaces: []string{"chaos0"}, Zone: "a"}
	serial := 0
	for _, c := range []struct {
		name  string
		steps []Step
		want  Expected
		// held means that something is loaded. again means that it was reloaded.
		held, again bool
	}{
		{"not selected", []Step{{Do: "create an object", Object: &o}}, Expected{}, false, false},
		{
			"selected, no interface",
			[]Step{{Do: "label a node", Node: "node", Value: "a"}},
			Expected{Selected: true, Loaded: true, Failed: true},
			true, true,
		},
		{
			"attached",
			[]Step{{Do: "add an interface", Node: "node", Target: "chaos0"}},
			Expected{Selected: true, Loaded: true},
			true, false,
		},
		{
			"the predecessor stays",
			[]Step{{Do: "change an object", Object: variantOf(o, 2)}},
			Expected{Selected: true, Failed: true},
			true, false,
		},
		{
			"and is what is wanted again",
			[]Step{{Do: "change an object", Object: variantOf(o, 0)}},
			Expected{Selected: true, Loaded: true},
			true, false,
		},
		{
			"replaced",
			[]Step{{Do: "change an object", Object: variantOf(o, 1)}},
			Expected{Selected: true, Loaded: true},
			true, true,
		},
		{"rebooted", []Step{{Do: Reboot, Node: "node"}}, Expected{Selected: true, Loaded: true}, true, true},
		{"fails", []Step{{Do: "change an object", Object: variantOf(o, 3)}}, Expected{Selected: true, Failed: true}, true, false},
		{"a reboot ends the predecessor", []Step{{Do: Reboot, Node: "node"}}, Expected{Selected: true, Failed: true}, false, false},
	} {
		for _, s := range c.steps {
			if !m.Apply(s) {
				t.Fatalf("%s: %+v can't be done", c.name, s)
			}
		}
		m.Settle()
		got := m.Expect(m.Objects["o"], "node")
		if got.Selected != c.want.Selected || got.Failed != c.want.Failed || got.Loaded != c.want.Loaded {
			t.Errorf("%s: %+v", c.name, got)
		}
		held := m.Objects["o"].Held("node")
		if (held.Serial != 0) != c.held || (held.Serial != serial && held.Serial != 0) != c.again {
			t.Errorf("%s: holds %+v, load %d before", c.name, held, serial)
		}
		serial = held.Serial
	}
}

func variantOf(o Object, variant int) *Object {
	o.Variant = variant
	return &o
}

// TestKeepsMaps follows a pod's volume, which keeps the map of an object that is no longer
// loaded.
func TestKeepsMaps(t *testing.T) {
	m := NewModel(abilities(), []string{"node"})
	o := Object{Kind: "TcxProgram", Name: "o", Interfaces: []string{"chaos0"}}
	settled := Step{Settled: true}
	for _, c := range []struct {
		name  string
		steps []Step
		ready bool
		keeps bool
	}{
		{"no program", []Step{{Do: "create an object", Object: variantOf(o, 2)}, settled, {Do: "create a pod", Pod: &Pod{Name: "p", Node: "node", Of: "o", Map: "tcx_stats_map"}}}, false, false},
		{"started", []Step{{Do: "change an object", Object: variantOf(o, 0)}}, true, false},
		{"another map", []Step{{Do: "change an object", Object: variantOf(o, 1)}}, true, true},
		{"loaded again", []Step{{Do: "change an object", Object: variantOf(o, 0)}}, true, false},
		{"deleted", []Step{{Do: "delete an object", Target: "o", Object: &o}}, true, true},
		{"created again", []Step{{Do: "create an object", Object: variantOf(o, 0)}}, true, false},
		{"another map, rebooted", []Step{{Do: "change an object", Object: variantOf(o, 1)}, settled, {Do: Reboot, Node: "node"}}, false, false},
	} {
		for _, s := range append(c.steps, settled) {
			if !m.Apply(s) {
				t.Fatalf("%s: %+v can't be done", c.name, s)
			}
		}
		if ready := m.Ready(m.Pods["p"]); ready != c.ready || m.KeepsMaps() != c.keeps {
			t.Errorf("%s: the pod is ready: %v, and keeps a map: %v", c.name, ready, m.KeepsMaps())
		}
	}
}
