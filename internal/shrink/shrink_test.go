// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package shrink

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSequence checks that what is left fails, is a part of the sequence, and has nothing that can be left out.
func TestSequence(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails func([]int) bool
		want  []int
	}{
		{"one", func(s []int) bool { return slices.Contains(s, 17) }, []int{17}},
		{"some that are apart, in their order", func(s []int) bool {
			return slices.Contains(s, 3) && slices.Contains(s, 64) && slices.Contains(s, 99) && slices.IsSorted(s)
		}, []int{3, 64, 99}},
		{"all", func(s []int) bool { return len(s) == 100 }, nil},
		{"nothing", func([]int) bool { return true }, []int{}},
		{"any three", func(s []int) bool { return len(s) >= 3 }, nil},
		{"an element that isn't needed without a later one", func(s []int) bool {
			return slices.Contains(s, 5) && (slices.Contains(s, 60) || !slices.Contains(s, 70))
		}, []int{5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var whole []int
			for i := range 100 {
				whole = append(whole, i)
			}
			less := Sequence(whole, tc.fails)
			if tc.want != nil && !slices.Equal(less, tc.want) {
				t.Errorf("%v is left, not %v", less, tc.want)
			}
			if !tc.fails(less) {
				t.Errorf("%v doesn't fail", less)
			}
			for i := range less {
				if tc.fails(slices.Delete(slices.Clone(less), i, i+1)) {
					t.Errorf("element %d of %v isn't needed", less[i], less)
				}
			}
		})
	}
}

// TestSequenceAsksRarely checks that a long sequence with one cause doesn't need a try for each element.
func TestSequenceAsksRarely(t *testing.T) {
	whole := rand.Perm(1000)
	tries := 0
	less := Sequence(whole, func(s []int) bool { tries++; return slices.Contains(s, 500) })
	if !slices.Equal(less, []int{500}) {
		t.Errorf("%v is left", less)
	}
	if tries > 50 {
		t.Errorf("it took %d tries", tries)
	}
}
