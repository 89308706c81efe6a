// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package conflicts selects among the conflicts of a node where there isn't space for all.
package conflicts

import (
	"cmp"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// First returns up to n conflicts, in their order. Types take turns, and so do the namespaces of the objects of a type or, of
// conflicts of cluster-scoped objects, those of the programs, which are of the same node. Whoever causes many conflicts therefore
// doesn't displace those of others.
func First(all []v1alpha1.BpfNodeConflict, n int, programs []v1alpha1.BpfNodeProgram) []v1alpha1.BpfNodeConflict {
	if len(all) <= n {
		return all
	}
	causes := map[uint32]string{}
	for _, p := range programs {
		if p.Owner != nil {
			causes[p.ID] = p.Owner.Namespace
		}
	}
	namespaceOf := func(c v1alpha1.BpfNodeConflict) string {
		if c.Owner != nil && c.Owner.Namespace != "" {
			return c.Owner.Namespace
		}
		return causes[c.ProgramID]
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	takeTurns(order, func(i int) string { return all[i].Type + " " + namespaceOf(all[i]) })
	takeTurns(order, func(i int) string { return all[i].Type })
	order = order[:n]
	slices.Sort(order)
	first := make([]v1alpha1.BpfNodeConflict, n)
	for to, from := range order {
		first[to] = all[from]
	}
	return first
}

// takeTurns sorts a list so that the first element of each group comes first, then the second one of each, and so on.
func takeTurns(list []int, group func(int) string) {
	turn, taken := map[int]int{}, map[string]int{}
	for _, i := range list {
		of := group(i)
		turn[i] = taken[of]
		taken[of]++
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(turn[a], turn[b]) })
}
