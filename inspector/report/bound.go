// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"encoding/json"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/conflicts"
)

// Limit is the maximum size of a status in JSON, in bytes. It is enough for 4,000
// programs. etcd accepts requests of up to one and a half megabytes.
const Limit = 1_200_000

// Bound returns a copy of a status that isn't larger than limit. Until it fits, Bound
// removes, in this order: conflicts but 100, of which each type and
// namespace has a share; pins after the first ten of each
// map, because a pod can create any number in its volume; holders after the first three
// of each program; maps, from the end; attach points after the first four of each
// program; holders and attach points after the first one; all holders, and the ids of
// programs' maps; programs that other software loaded, from the end; and programs of
// bpfman. The field omitted counts what was removed, except for ids of maps and for pins.
func Bound(whole *v1alpha1.BpfNodeStatus, limit int) *v1alpha1.BpfNodeStatus {
	status := whole.DeepCopy()
	for _, step := range []func(*v1alpha1.BpfNodeStatus, *v1alpha1.BpfNodeOmitted, int){
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, _ int) {
			kept := conflicts.First(s.Conflicts, maxConflicts, s.Programs)
			o.Conflicts += count(s.Conflicts[len(kept):])
			s.Conflicts = kept
		},
		func(s *v1alpha1.BpfNodeStatus, _ *v1alpha1.BpfNodeOmitted, _ int) {
			for i := range s.Maps {
				s.Maps[i].Pins = s.Maps[i].Pins[:min(len(s.Maps[i].Pins), maxPins)]
			}
		},
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, _ int) { fewer(s, o, 3, all) },
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, over int) {
			s.Maps = shorter(s.Maps, over, &o.Maps, func(v1alpha1.BpfNodeMap) bool { return true })
		},
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, _ int) { fewer(s, o, all, 4) },
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, _ int) { fewer(s, o, 1, 1) },
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, _ int) {
			fewer(s, o, 0, 1)
			for i := range s.Programs {
				s.Programs[i].MapIDs = nil
			}
		},
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, over int) {
			s.Programs = shorter(s.Programs, over, &o.Programs, func(p v1alpha1.BpfNodeProgram) bool { return !p.Bpfman })
		},
		func(s *v1alpha1.BpfNodeStatus, o *v1alpha1.BpfNodeOmitted, over int) {
			s.Programs = shorter(s.Programs, over, &o.Programs, func(v1alpha1.BpfNodeProgram) bool { return true })
		},
	} {
		over := size(status) - limit
		if over <= 0 {
			return status
		}
		omitted := status.Omitted
		if omitted == nil {
			omitted = &v1alpha1.BpfNodeOmitted{}
		}
		step(status, omitted, over)
		if *omitted != (v1alpha1.BpfNodeOmitted{}) {
			status.Omitted = omitted
		}
	}
	return status
}

const (
	maxConflicts = 100
	maxPins      = 10
)

// all is larger than any number of elements.
const all = 1 << 30

func size(of any) int {
	encoded, err := json.Marshal(of)
	if err != nil {
		return 0 // encoding structs of strings and numbers never fails
	}
	return len(encoded)
}

// first keeps the first n elements, and counts the others.
func first[E any](list []E, n int, omitted *int32) []E {
	if len(list) <= n {
		return list
	}
	*omitted += count(list[n:])
	return list[:n:n]
}

// fewer keeps the first holders and attach points of each program.
func fewer(status *v1alpha1.BpfNodeStatus, omitted *v1alpha1.BpfNodeOmitted, holders, points int) {
	for i := range status.Programs {
		program := &status.Programs[i]
		program.Holders = first(program.Holders, holders, &omitted.Holders)
		program.AttachPoints = first(program.AttachPoints, points, &omitted.AttachPoints)
	}
}

// shorter removes elements for which may returns true from the end of a list, until it
// has removed over bytes.
func shorter[E any](list []E, over int, omitted *int32, may func(E) bool) []E {
	const count = 64 // more than the counters in omitted need
	over += count
	kept := make([]E, 0, len(list))
	for _, element := range slices.Backward(list) {
		if over > 0 && may(element) {
			over -= size(element) + len(",")
			*omitted++
			continue
		}
		kept = append(kept, element)
	}
	slices.Reverse(kept)
	return kept
}
