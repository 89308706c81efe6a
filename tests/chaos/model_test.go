// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"slices"
	"testing"
)

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

// TestCutOff checks that a program that cuts off a node isn't kept there, also after a reboot, and that nothing else
// changes at the same time.
func TestCutOff(t *testing.T) {
	m := NewModel(abilities(), []string{"first", "second"})
	cut := Step{Do: "cut off a node", Object: &Object{Kind: "TcxProgram", Name: "cut0", CutsOff: "second"}}
	for _, s := range []Step{cut, {Settled: true}, {Do: Reboot, Node: "second"}, {Settled: true}} {
		if !m.Apply(s) {
			t.Fatalf("%+v can't be done", s)
		}
	}
	o := m.Objects["cut0"]
	if e := m.Expect(o, "second"); !e.Selected || !e.Failed || e.Loaded || o.Held("second").Serial != 0 {
		t.Errorf("the node that is cut off: %+v, holds %+v", e, o.Held("second"))
	}
	if e := m.Expect(o, "first"); e.Selected {
		t.Errorf("the other node: %+v", e)
	}
	steps, _ := drawn(1, 2000, "first", "second")
	found := 0
	for _, burst := range Bursts(steps) {
		for i, s := range burst {
			if s.Do != cut.Do {
				continue
			}
			found++
			for _, other := range slices.Concat(burst[:i], burst[i+1:]) {
				if operationOf(other.Do) != nil && other.Do != "create an invalid object" {
					t.Errorf("%+v comes with %+v", s, other)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no node is cut off")
	}
}

// TestStagedReboot checks that no node reboots while the revision that it has isn't known.
func TestStagedReboot(t *testing.T) {
	steps, _ := drawn(1, 2000)
	staged := 0
	for _, burst := range Bursts(steps) {
		changes, reboots := false, false
		for _, s := range burst {
			changes = changes || s.Do == "create or delete the RolloutPolicy" || s.Do == "change an object" && s.Object.Staged && s.Object.variant().Bad
			reboots = reboots || s.Do == Reboot
		}
		if changes {
			staged++
		}
		if changes && reboots {
			t.Errorf("a reboot in %+v", burst)
		}
	}
	if staged == 0 {
		t.Error("nothing is rolled out in steps")
	}
}
