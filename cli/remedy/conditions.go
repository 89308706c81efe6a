// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package remedy

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Condition is a condition of a BpfProgram. If the report doesn't name the problem, its ToDo is the answer: the agent of an
// earlier version wrote it, or the text of the daemon isn't known.
type Condition struct {
	Type  v1alpha1.BpfProgramConditionType
	ToDo  string
	Links []problem.Link
}

// Conditions are the conditions of a BpfProgram.
var Conditions = []Condition{
	{Type: v1alpha1.BpfProgCondLoaded},
	{Type: v1alpha1.BpfProgCondNoContainersOnNode, ToDo: "nothing, if no container should match; otherwise correct the labels in `containers`"},
	{Type: v1alpha1.BpfProgCondNoInterfacesOnNode, ToDo: "nothing, if no interface should match; otherwise correct `interfaceselector`"},
	{Type: v1alpha1.BpfProgCondNotLoaded, ToDo: "loading or attaching failed: correct what the message names at its end. The agent retries"},
	{Type: v1alpha1.BpfProgCondNotUnloaded, ToDo: "detaching or unloading failed: the message has the daemon's error"},
	{Type: v1alpha1.BpfProgCondMapOwnerNotFound, ToDo: "no program matches `mapownerselector` on this node, or several do; the message names them"},
	{Type: v1alpha1.BpfProgCondMapOwnerNotLoaded, ToDo: "the map owner exists but fails: correct it first"},
	{Type: v1alpha1.BpfProgCondBytecodeSelectorError, ToDo: "the bytecode can't be obtained; the message says why: the pull Secret, the registry, the form of the image, or the path"},
	{
		Type: v1alpha1.BpfProgCondPolicyDenied,
		ToDo: "a BytecodePolicy refuses the bytecode, or the bytecode can't be verified: nothing is loaded, and the agent retries. The message names the policy and the rule; `status.bytecode.policies` has the verdict of each policy",
	},
	{
		Type: v1alpha1.BpfProgCondPolicyViolated,
		ToDo: "the program is loaded, but a BytecodePolicy no longer allows it: it stays attached where it is, and isn't attached anywhere new. Sign the image, change the object, or change the policy; with `onViolation: unload`, the program is unloaded",
	},
	{Type: v1alpha1.BpfProgCondNone, ToDo: "nothing yet: the message says what the agent waits for"},
	{
		Type:  v1alpha1.BpfProgCondRolledBack,
		ToDo:  "the node lost the connection to the API server with this version, and runs the previous one, nothing, or what was confirmed: see Roll back changes that cut off a node",
		Links: []problem.Link{{Text: "Roll back changes that cut off a node", Page: "rollback.md"}},
	},
}

// ofCondition returns what to do about a condition of a BpfProgram whose problem isn't known, by its reason. It is "" if there is
// nothing to do.
func ofCondition(reason string) string {
	for _, c := range Conditions {
		if c.Type.Condition().Reason == reason {
			return c.ToDo
		}
	}
	return ""
}

// Conflict is a type of conflict with programs of other software. Each has a part of docs/conflicts.md with its name as title.
type Conflict struct{ Type, ToDo string }

// Conflicts are the types of conflicts.
var Conflicts = []Conflict{
	{Type: v1alpha1.BpfNodeForeignXDP, ToDo: "remove the other program, keep yours off the interface with `interfaceselector`, or use a TcxProgram: see ForeignXDP"},
	{Type: v1alpha1.BpfNodeEarlierInChain, ToDo: "compare what your program counts with what the interface receives. To make your program the first again, delete your object and create it again: see EarlierInChain"},
	{Type: v1alpha1.BpfNodeNamespacedEarlier, ToDo: "give the cluster-scoped object a lower priority, and enforce reserved priorities: see NamespacedEarlierInChain"},
	{Type: v1alpha1.BpfNodeEventNearLimit, ToDo: "restart or correct the holder of most of the programs: see EventNearLimit"},
	{Type: v1alpha1.BpfNodeDispatcherFull, ToDo: "detach a program that you don't need, or use a TcxProgram: see DispatcherFull"},
	{Type: v1alpha1.BpfNodeUnownedProgram, ToDo: "find out who loaded the program: see UnownedProgram"},
}

// ofConflict returns what to do about a type of conflict, or "" if it is unknown.
func ofConflict(kind string) string {
	for _, c := range Conflicts {
		if c.Type == kind {
			return c.ToDo
		}
	}
	return ""
}
