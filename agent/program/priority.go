// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import "github.com/bpfman/bpfman-operator/internal/problem"

// Reserved are the priorities of network programs that are reserved for cluster-scoped kinds, because a program can
// keep those after it from running. Namespaced programs have had them before, so they only lose them if it
// is enforced.
type Reserved struct {
	// Below is the lowest priority that isn't reserved.
	Below int
	// Enforced means that namespaced programs with a reserved priority aren't attached.
	Enforced bool
}

// maxPriority is the highest priority that the API accepts.
const maxPriority = 1000

// refusal returns why a namespaced program can't be attached with its priority, or nil.
func (o onNetwork) refusal(n Node) error {
	if !n.Reserved.Enforced || !o.reserved(n) {
		return nil
	}
	return problem.Errorf(problem.PriorityReserved, "priority %d is reserved for cluster-scoped programs: set one from %d to %d "+
		"(bpfman.priority.reserved of the ConfigMap bpfman-config)", o.priority, n.Reserved.Below, maxPriority)
}

func (o onNetwork) reserved(n Node) bool {
	return o.containers != nil && o.containers.tenant && int(o.priority) < n.Reserved.Below
}

// notes says in which order a namespaced program with a reserved priority runs.
func (o onNetwork) notes(n Node) []problem.Note {
	if !o.reserved(n) {
		return nil
	}
	return []problem.Note{problem.Notef(problem.PriorityReserved, "priority %d is reserved for cluster-scoped programs, and runs before those with a higher number: "+
		"set a priority from %d to %d", o.priority, n.Reserved.Below, maxPriority)}
}

// Notes returns what users should know about a program on a node, although it works.
func Notes(s Spec, n Node) []problem.Note {
	noted, ok := s.(interface{ notes(n Node) []problem.Note })
	if !ok {
		return nil
	}
	return noted.notes(n)
}
