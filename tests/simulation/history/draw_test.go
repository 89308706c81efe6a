// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// A seed always leads to the same plan. Each kind of fault and each operation is in the plans of some seeds, and left out of others'.
func TestDraw(t *testing.T) {
	const seeds = 400
	in := map[string]int{}
	for seed := range uint64(seeds) {
		p := Draw(seed)
		if !reflect.DeepEqual(p, Draw(seed)) {
			t.Fatalf("seed %d leads to two plans", seed)
		}
		names := map[string]bool{}
		for _, s := range p.Steps {
			switch {
			case s.Fault != nil:
				names[s.Fault.Kind] = true
			case !s.Operation.Settled:
				names[s.Operation.Do] = true
			}
		}
		for name := range names {
			in[name]++
		}
	}
	all := append(slices.Collect(maps.Keys(Operations)), reboot.Name)
	for _, f := range Faults {
		all = append(all, f.Name)
	}
	for _, name := range all {
		if n := in[name]; n == 0 || n == seeds {
			t.Errorf("%q is in the plans of %d of %d seeds", name, n, seeds)
		}
	}
}
