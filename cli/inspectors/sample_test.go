// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspectors

import (
	"fmt"
	"slices"
	"testing"
)

// A sample is spread over the nodes. It is the same each time, so that its figures can be compared.
func TestSample(t *testing.T) {
	found := &Found{byNode: map[string]string{}}
	for i := range 8 {
		found.byNode[fmt.Sprint("n", i)] = "pod"
	}
	for n, want := range map[int][]string{
		3: {"n0", "n2", "n5"}, 8: {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"}, 20: {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"},
	} {
		if got := found.Sample(n); !slices.Equal(got, want) {
			t.Errorf("%d nodes: %q, want %q", n, got, want)
		}
	}
	if found.Count() != 8 {
		t.Errorf("%d nodes", found.Count())
	}
}
