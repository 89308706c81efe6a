// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// abilities returns the abilities of a kernel without BPF trampolines and kprobes.
func abilities() map[string]Ability {
	can := map[string]Ability{}
	for _, s := range shapes {
		for _, v := range s.Variants {
			for _, member := range v.Members {
				can[member.Type] = Ability{Loads: true, Attaches: true}
			}
		}
	}
	for _, name := range []string{"XDP", "TC", "Fentry", "Fexit"} {
		can[name] = Ability{}
	}
	can["Kprobe"] = Ability{Loads: true}
	return can
}

func drawn(seed uint64, bursts int, nodes ...string) ([]Step, *Model) {
	if len(nodes) == 0 {
		nodes = []string{"node"}
	}
	m := NewModel(abilities(), nodes)
	q := NewSequence(seed, m, 1)
	var steps []Step
	for range bursts {
		steps = append(steps, q.Burst()...)
	}
	return steps, m
}

// TestSequenceRepeats checks that the same seed results in the same steps, and another seed
// in others. Steps from a recording result in the same model.
func TestSequenceRepeats(t *testing.T) {
	steps, m := drawn(7, 100)
	again, _ := drawn(7, 100)
	if !reflect.DeepEqual(steps, again) {
		t.Error("one seed draws two sequences")
	}
	if other, _ := drawn(8, 100); reflect.DeepEqual(steps, other) {
		t.Error("two seeds draw one sequence")
	}
	file := filepath.Join(t.TempDir(), "sequence.json")
	must.Succeed(t, (Recording{7, m.Nodes, steps}).Save(file))
	recorded, err := LoadRecording(file)
	if err != nil {
		t.Fatal(err)
	}
	replayed := NewModel(abilities(), []string{"node"})
	for _, s := range recorded.Steps {
		if !replayed.Apply(s) {
			t.Fatalf("%+v can't be done again", s)
		}
	}
	if !reflect.DeepEqual(replayed, m) {
		t.Errorf("the recording leads to\n%+v, not\n%+v", replayed, m)
	}
}

// TestSequenceHasEverything checks that each operation and fault, and each kind of object,
// is drawn and applied.
func TestSequenceHasEverything(t *testing.T) {
	nodes := []string{"first", "second", "third"}
	steps, _ := drawn(1, 600, nodes...)
	seen := map[string]bool{}
	for _, s := range steps {
		seen[s.Do] = true
		if s.Object != nil {
			seen[s.Object.Kind] = true
		}
		if s.Do == "kill" {
			seen["kill "+s.Target] = true
			if slices.Contains(controlPlane, s.Target) && s.Node != nodes[0] {
				t.Errorf("%s is killed on %s, where it isn't", s.Target, s.Node)
			}
		}
	}
	for _, o := range Operations {
		if !seen[o.Name] {
			t.Errorf("%q isn't drawn", o.Name)
		}
	}
	for _, f := range Faults {
		if !seen[f.Name] {
			t.Errorf("%q isn't drawn", f.Name)
		}
	}
	for _, s := range shapes {
		if !seen[s.Kind] {
			t.Errorf("no %s is drawn", s.Kind)
		}
	}
	for _, program := range slices.Concat(ours, platform) {
		if !seen["kill "+program] {
			t.Errorf("%s isn't killed", program)
		}
	}
}

// TestShrink finds the two steps that a failure needs.
func TestShrink(t *testing.T) {
	steps, _ := drawn(3, 40)
	var one, other Step
	for _, s := range steps {
		if s.Do == "create an object" && one.Do == "" {
			one = s
		}
		if s.Do == "kill" {
			other = s
		}
	}
	has := func(steps []Step, s Step) bool {
		return slices.ContainsFunc(steps, func(x Step) bool { return reflect.DeepEqual(x, s) })
	}
	less := Shrink(steps, func(steps []Step) bool { return has(steps, one) && has(steps, other) })
	less = slices.DeleteFunc(less, func(s Step) bool { return s.Settled })
	if len(less) != 2 {
		t.Errorf("%d steps are left: %+v", len(less), less)
	}
}
