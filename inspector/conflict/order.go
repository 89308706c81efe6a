// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// namespacedEarlier finds namespaced programs that run before cluster-scoped ones, and can end the chain. There is one
// conflict for each namespaced program and cluster-scoped object, because a program can be in all pods of its
// namespace.
//
// No proceedon prevents a program from ending the chain: a dispatcher also returns if a result isn't one of the known
// ones, such as 6 of XDP (bpfman v0.6.0, xdp_dispatcher_v2.bpf.c and tc_dispatcher.bpf.c).
func (f *finder) namespacedEarlier() {
	type pair struct {
		program uint32
		owner   v1alpha1.BpfNodeOwner
	}
	found := map[pair]bool{}
	chains := f.chains()
	for _, hook := range slices.Sorted(maps.Keys(chains)) {
		order := f.dispatched(chains[hook])
		for i, later := range order {
			if later.program.Owner == nil || later.program.Owner.Namespace != "" {
				continue
			}
			for _, earlier := range order[:i] {
				about := pair{earlier.program.ID, *later.program.Owner}
				if owner := earlier.program.Owner; owner == nil || owner.Namespace == "" || found[about] {
					continue
				}
				found[about] = true
				f.add(v1alpha1.BpfNodeNamespacedEarlier, earlier.program.ID, later.program.Owner, "%s of %s runs before %s at %s of %s, and can end the chain",
					describe(earlier.program), earlier.program.Owner, later.program.Owner, later.point.Type, place(later.point))
			}
		}
	}
}

// dispatched returns a chain with the programs of its dispatchers in place of the dispatchers, in the order of their
// slots, at the dispatcher's attach point.
func (f *finder) dispatched(chain []at) []at {
	var order []at
	for _, one := range chain {
		members := f.members[one.program.ID]
		if len(members) == 0 {
			order = append(order, one)
			continue
		}
		slots := slices.SortedFunc(slices.Values(members), func(a, b *v1alpha1.BpfNodeProgram) int {
			return cmp.Compare(slotIn(a, one.program.ID), slotIn(b, one.program.ID))
		})
		for _, member := range slots {
			order = append(order, at{member, one.point})
		}
	}
	return order
}

// slotIn returns the position of a program among those of a dispatcher.
func slotIn(program *v1alpha1.BpfNodeProgram, dispatcher uint32) int32 {
	for _, point := range program.AttachPoints {
		if point.TargetProgramID == dispatcher {
			return point.Position
		}
	}
	return 0
}

// namespacesIn says how many programs of a dispatcher belong to the namespace with the most of them. It returns "" if
// all belong to cluster-scoped objects.
func (f *finder) namespacesIn(dispatcher uint32) string {
	counts := map[string]int{}
	for _, member := range f.members[dispatcher] {
		if member.Owner != nil && member.Owner.Namespace != "" {
			counts[member.Owner.Namespace]++
		}
	}
	if len(counts) == 0 {
		return ""
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(counts)), func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
	return fmt.Sprintf("; namespace %s has %d of them", most, counts[most])
}
