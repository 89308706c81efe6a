// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
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

// TestCutOff checks that a program that cuts off a node isn't kept there, even after a reboot, and that nothing else
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

// TestFailingRevision follows an object whose revision fails, with what the policy then does.
func TestFailingRevision(t *testing.T) {
	const other, canary = "first", "second"
	good := Object{Kind: "TcxProgram", Name: "o", Interfaces: []string{"chaos0"}, Staged: true}
	bad := func(onFailure v1alpha1.RolloutOnFailure) Step {
		o := *variantOf(good, 2)
		o.OnFailure = onFailure
		return Step{Do: "roll out a revision that fails", Object: &o}
	}
	settled := Step{Settled: true}
	for _, c := range []struct {
		name  string
		steps []Step
		state v1alpha1.RolloutState
		// runs are the variants that the nodes run, and holds those that they have loaded, or -1.
		runs, holds [2]int
	}{
		{"halted", []Step{bad(v1alpha1.RolloutHalt)}, v1alpha1.RolloutHalted, [2]int{0, 2}, [2]int{0, 0}},
		{"halted, rebooted", []Step{bad(v1alpha1.RolloutHalt), settled, {Do: Reboot, Node: other}, {Do: Reboot, Node: canary}}, v1alpha1.RolloutHalted, [2]int{0, 2}, [2]int{0, -1}},
		{"undone", []Step{bad(v1alpha1.RolloutUndo)}, v1alpha1.RolloutUndone, [2]int{0, 0}, [2]int{0, 0}},
		{"undone, rebooted", []Step{bad(v1alpha1.RolloutUndo), settled, {Do: Reboot, Node: canary}}, v1alpha1.RolloutUndone, [2]int{0, 0}, [2]int{0, 0}},
		{"corrected", []Step{bad(v1alpha1.RolloutHalt), settled, {Do: "change an object", Object: variantOf(good, 1)}}, v1alpha1.RolloutComplete, [2]int{1, 1}, [2]int{1, 1}},
		{"without policies", []Step{bad(v1alpha1.RolloutUndo), settled, {Do: "create or delete the RolloutPolicies", Value: "delete"}}, "", [2]int{2, 2}, [2]int{0, 0}},
	} {
		m := NewModel(abilities(), []string{other, canary})
		begin := []Step{{Do: "create or delete the RolloutPolicies", Value: "create"}, settled, {Do: "create an object", Object: &good}, settled}
		for _, s := range append(append(begin, c.steps...), settled) {
			if !m.Apply(s) {
				t.Fatalf("%s: %+v can't be done", c.name, s)
			}
		}
		o := m.Objects["o"]
		if state := m.Rollout(o); state != c.state {
			t.Errorf("%s: the rollout is %q", c.name, state)
		}
		for i, name := range m.Nodes {
			holds := -1
			if held := o.Held(name); held.Serial != 0 {
				holds = held.Load.variant
			}
			runs := m.Runs(o, name).Variant
			if e := m.Expect(o, name); runs != c.runs[i] || holds != c.holds[i] || e.Loaded != (runs != 2) {
				t.Errorf("%s: %s runs %d and holds %d: %+v", c.name, name, runs, holds, e)
			}
		}
	}
}

// TestStagedReboot checks that no node reboots while the revision that it has isn't known.
func TestStagedReboot(t *testing.T) {
	steps, _ := drawn(1, 2000)
	seen := map[string]bool{}
	for _, burst := range Bursts(steps) {
		changes, reboots := "", false
		for _, s := range burst {
			switch {
			case s.Do == "create or delete the RolloutPolicies", s.Do == "roll out a revision that fails",
				s.Do == "change an object" && s.Object.Staged && s.Object.variant().Bad:
				changes = s.Do
			}
			reboots = reboots || s.Do == Reboot
		}
		seen[changes] = true
		if changes != "" && reboots {
			t.Errorf("a reboot in %+v", burst)
		}
	}
	if len(seen) != 4 {
		t.Errorf("what is rolled out in steps is %v", seen)
	}
}
