// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// ProgramConditionType is the type of the condition of an object that a user writes. It
// summarizes the state on all nodes.
type ProgramConditionType string

const (
	// ProgramNotYetLoaded means that a selected node hasn't reported yet.
	ProgramNotYetLoaded ProgramConditionType = "NotYetLoaded"
	// ProgramReconcileError means that a node reports a failure.
	ProgramReconcileError ProgramConditionType = "ReconcileError"
	// ProgramReconcileSuccess means that each selected node has what was requested.
	ProgramReconcileSuccess ProgramConditionType = "ReconcileSuccess"
	// ProgramDeleteError means that a node fails to unload a program whose object was
	// deleted.
	ProgramDeleteError ProgramConditionType = "DeleteError"
)

// BpfProgramConditionType is the type of the condition of a BpfProgram or BpfNsProgram.
// It is the state of one program on one node.
type BpfProgramConditionType string

const (
	// BpfProgCondLoaded means that the program is loaded, and attached as requested.
	BpfProgCondLoaded BpfProgramConditionType = "Loaded"
	// BpfProgCondNotLoaded means that loading or attaching failed.
	BpfProgCondNotLoaded BpfProgramConditionType = "NotLoaded"
	// BpfProgCondNotUnloaded means that unloading failed. The unusual capital letter is
	// upstream's.
	BpfProgCondNotUnloaded BpfProgramConditionType = "NotUnLoaded"
	// BpfProgCondNotSelected means that the node isn't selected.
	BpfProgCondNotSelected BpfProgramConditionType = "NotSelected"
	// BpfProgCondUnloaded means that the program is unloaded, as requested.
	BpfProgCondUnloaded BpfProgramConditionType = "Unloaded"
	// BpfProgCondMapOwnerNotFound means that no program matches the selector of
	// the map owner.
	BpfProgCondMapOwnerNotFound BpfProgramConditionType = "MapOwnerNotFound"
	// BpfProgCondMapOwnerNotLoaded means that the map owner isn't loaded.
	BpfProgCondMapOwnerNotLoaded BpfProgramConditionType = "MapOwnerNotLoaded"
	// BpfProgCondBytecodeSelectorError means that the node can't get the bytecode.
	BpfProgCondBytecodeSelectorError BpfProgramConditionType = "BytecodeSelectorError"
	// BpfProgCondPolicyDenied means that the bytecode isn't loaded, because a
	// BytecodePolicy denies it, or because it isn't known whether one does.
	BpfProgCondPolicyDenied BpfProgramConditionType = "PolicyDenied"
	// BpfProgCondPolicyViolated means that the program is loaded, and attached as
	// requested, but a BytecodePolicy would now prevent loading it.
	BpfProgCondPolicyViolated BpfProgramConditionType = "PolicyViolated"
	// BpfProgCondRolledBack means that the object's previous version runs, nothing, or only what was confirmed of this one,
	// because the node lost the connection to the API server when this version was attached.
	BpfProgCondRolledBack BpfProgramConditionType = "RolledBack"
	// BpfProgCondNoContainersOnNode means that the object selects no container on the
	// node.
	BpfProgCondNoContainersOnNode BpfProgramConditionType = "NoContainersOnNode"
	// BpfProgCondNoInterfacesOnNode means that the object selects no interface on the
	// node, or in the selected pods there.
	BpfProgCondNoInterfacesOnNode BpfProgramConditionType = "NoInterfacesOnNode"
	// BpfProgCondNone is none of these states.
	BpfProgCondNone BpfProgramConditionType = "None"
)

// text is what a condition shows: the reason, which is the STATUS column, and the
// default message. The words are upstream's, because users and scripts know them.
type text struct{ reason, message string }

var programTexts = map[ProgramConditionType]text{
	ProgramNotYetLoaded:     {"ProgramsNotYetLoaded", "Waiting for Program Object to be reconciled to all nodes"},
	ProgramReconcileError:   {"ReconcileError", "bpfProgramReconciliation failed"},
	ProgramReconcileSuccess: {"ReconcileSuccess", "bpfProgramReconciliation Succeeded on all nodes"},
	ProgramDeleteError:      {"DeleteError", "Program Deletion failed"},
}

var bpfProgramTexts = map[BpfProgramConditionType]text{
	BpfProgCondLoaded:                {"bpfmanLoaded", "Successfully loaded bpfProgram"},
	BpfProgCondNotLoaded:             {"bpfmanNotLoaded", "Failed to load bpfProgram"},
	BpfProgCondNotUnloaded:           {"bpfmanNotUnloaded", "Failed to unload bpfProgram"},
	BpfProgCondNotSelected:           {"nodeNotSelected", "This node is not selected to run the bpfProgram"},
	BpfProgCondUnloaded:              {"bpfmanUnloaded", "This BpfProgram object and all it's bpfman programs have been unloaded"},
	BpfProgCondMapOwnerNotFound:      {"mapOwnerNotFound", "BpfProgram map owner not found"},
	BpfProgCondMapOwnerNotLoaded:     {"mapOwnerNotLoaded", "BpfProgram map owner not loaded"},
	BpfProgCondBytecodeSelectorError: {"bytecodeSelectorError", "There was an error processing the provided bytecode selector"},
	BpfProgCondPolicyDenied:          {"policyDenied", "A BytecodePolicy refuses the bytecode"},
	BpfProgCondPolicyViolated:        {"policyViolated", "Loaded, but a BytecodePolicy no longer allows the bytecode"},
	BpfProgCondRolledBack:            {"rolledBack", "The change was rolled back, because the node lost the connection to the API server"},
	BpfProgCondNoContainersOnNode:    {"noContainersOnNode", "There are no containers on the node that match the container selector"},
	BpfProgCondNoInterfacesOnNode:    {"noInterfacesOnNode", "There are no interfaces on the node that match the interface selector"},
	BpfProgCondNone:                  {"None", "None of the conditions apply"},
}

// applicationConditions are the types of the first condition of an application of upstream's v0.6, which
// are its reasons too.
var applicationConditions = map[ProgramConditionType]string{
	ProgramNotYetLoaded:     "Pending",
	ProgramReconcileError:   "Error",
	ProgramReconcileSuccess: "Success",
	ProgramDeleteError:      "DeleteError",
}

// For returns a condition as the first one of an object of a kind has it: an application of
// upstream's v0.6 has other types and reasons than the other kinds.
func (t ProgramConditionType) For(kind string, namespaced bool, message string) metav1.Condition {
	c := t.Condition(message)
	if HasLinks(kind, namespaced) {
		c.Type, c.Reason = applicationConditions[t], applicationConditions[t]
	}
	return c
}

// ProgramConditionTypeOf returns the meaning of the type of the first condition of an object of any
// kind. An unknown type is returned as it is.
func ProgramConditionTypeOf(conditionType string) ProgramConditionType {
	for t, name := range applicationConditions {
		if name == conditionType {
			return t
		}
	}
	return ProgramConditionType(conditionType)
}

// Condition returns the condition of this type. If message is empty, it has upstream's
// message.
func (t ProgramConditionType) Condition(message string) metav1.Condition {
	return condition(string(t), programTexts[t], message)
}

// Condition returns the condition of this type. Without a message, it has upstream's
// message.
func (t BpfProgramConditionType) Condition(message ...string) metav1.Condition {
	return condition(string(t), bpfProgramTexts[t], strings.Join(message, "; "))
}

// Failed reports whether the type means that the node doesn't have what was requested.
func (t BpfProgramConditionType) Failed() bool {
	switch t {
	case BpfProgCondNotLoaded, BpfProgCondNotUnloaded, BpfProgCondMapOwnerNotFound,
		BpfProgCondMapOwnerNotLoaded, BpfProgCondBytecodeSelectorError,
		BpfProgCondPolicyDenied, BpfProgCondPolicyViolated, BpfProgCondRolledBack:
		return true
	default:
		return false
	}
}

// Idle reports whether the type means that the program is loaded, but has nothing to attach
// to on the node. It becomes attached when something appears there.
func (t BpfProgramConditionType) Idle() bool {
	return t == BpfProgCondNoContainersOnNode || t == BpfProgCondNoInterfacesOnNode
}

// maxMessage is the limit of metav1.Condition's message. The API counts characters, so a
// limit in bytes is stricter.
const maxMessage = 32768

func condition(conditionType string, t text, message string) metav1.Condition {
	if message == "" {
		message = t.message
	}
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: t.reason, Message: shorten.Middle(message, maxMessage)}
}

// State is how far an object is, and the type of a condition that is True in this state.
// kstatus (sigs.k8s.io/cli-utils/pkg/kstatus) reads these types, and so do Helm, Flux, and
// Argo CD.
type State string

const (
	// Ready means that the object is as requested.
	Ready State = "Ready"
	// Reconciling means that the object isn't ready yet, and can become so by itself.
	Reconciling State = "Reconciling"
	// Stalled means that the object doesn't become ready until somebody changes it, or what
	// it depends on.
	Stalled State = "Stalled"
)

// Reasons of the condition Ready of an object that is attached nowhere, because nothing matches. It is Ready, as a
// DaemonSet without nodes is, and becomes attached when something appears that matches.
const (
	// NothingSelected means that the object selects no node that runs an agent.
	NothingSelected = "NothingSelected"
	// NothingMatched means that the selected nodes have no container or interface that matches.
	NothingMatched = "NothingMatched"
)

// maxStateMessage is the maximum length of the message of the conditions about the state,
// in bytes. The first condition has all of it.
const maxStateMessage = 1024

// Conditions returns c, which upstream's clients expect first, followed by Ready and, unless
// that is True, the condition of the state.
func (s State) Conditions(c metav1.Condition) []metav1.Condition {
	ready := c
	ready.Type, ready.Status, ready.Message = string(Ready), metav1.ConditionTrue, shorten.Middle(c.Message, maxStateMessage)
	if s == Ready {
		return []metav1.Condition{c, ready}
	}
	state := ready
	state.Type, ready.Status = string(s), metav1.ConditionFalse
	return []metav1.Condition{c, ready, state}
}

// SetConditions makes wanted the list of conditions, and reports whether anything changed.
// It keeps the times of the last transitions of conditions whose status stays the same.
func SetConditions(conditions *[]metav1.Condition, wanted ...metav1.Condition) bool {
	changed := len(*conditions) != len(wanted)
	set := make([]metav1.Condition, 0, len(wanted))
	for i, c := range wanted {
		var one []metav1.Condition
		if old := meta.FindStatusCondition(*conditions, c.Type); old != nil {
			one = append(one, *old)
		}
		changed = meta.SetStatusCondition(&one, c) || changed || (*conditions)[i].Type != c.Type
		set = append(set, one...)
	}
	*conditions = set
	return changed
}
