// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// untyped is a member of an application without a valid program. The API server
// admits members without a type, like upstream's. It can contain other invalid
// members that were stored with the schema of another version.
type untyped struct {
	function
	problem error
}

func untypedOf(index int, t v1alpha1.EBPFProgType) Spec {
	if t == "" {
		return untyped{problem: problem.Errorf(problem.MemberWithoutType, "spec.programs[%d] has no type, so nothing is loaded for it", index)}
	}
	return untyped{problem: problem.Errorf(problem.MemberWithoutConfiguration, "spec.programs[%d] has no configuration for its type %q", index, t)}
}

func (untyped) ID() string { return "untyped" }

func (u untyped) Incomplete() error { return u.problem }

func (untyped) AttachPoints(Node) ([]AttachPoint, error) { return nil, nil }
