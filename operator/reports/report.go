// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package reports stores what the operator needs to know about each BpfProgram and BpfNsProgram. To save memory,
// it stores nothing else, because there is one for each program on each node. Controllers get all changes from one
// [Store].
package reports

import (
	"iter"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Report is the stored part of one BpfProgram or BpfNsProgram. It is immutable, and replaced after a change.
//
// Values that many reports have in common are stored once. If one object is attached on all nodes, its reports
// only differ in the name, the UID, and the program's id.
type Report struct {
	Name string
	UID  types.UID
	// Owner is the user object that the report is about.
	Owner unique.Handle[Owner]
	Node  unique.Handle[Node]
	State unique.Handle[State]
	// ProgramID is the kernel's id of the program, or 0 if it isn't loaded.
	ProgramID uint32
	// Foreign means that another client than an agent wrote last.
	Foreign bool
}

// Owner identifies a user object. If a report has no controller, only the namespace is set.
type Owner struct {
	Kind, Namespace, Name string
	UID                   types.UID
}

// Node is the node that a report comes from.
type Node struct {
	// Label is the value of the report's label: see [v1alpha1.LabelValue].
	Label string
	// Name is the name of the node in the report's status. It is "" until the agent has reported.
	Name string
}

// State is the content of a report.
type State struct {
	// Kind is the owner's kind in the label. Reports of upstream's agents don't have it.
	Kind string
	// Member is the member of an application that the report is about, or "".
	Member string
	// Generation is the metadata.generation of the owner that the report is based on.
	Generation int64
	// Condition is the type of the condition. It is "" until the agent has reported.
	Condition v1alpha1.BpfProgramConditionType
	// Stalled means that the failure stays until somebody changes something.
	Stalled bool
	// Previous means that the program of an earlier version of the owner runs, because the newest one can't be loaded.
	Previous bool
	// Linked means that the report has links.
	Linked bool
	// InPods means that the program is attached on the node, except for attach points in pods.
	InPods bool
	// Message is the first line of the condition's message, with at most 600 bytes. It has the cause. The report has the rest,
	// such as the log of the kernel's verifier. It is "" unless the condition is a failure, or None, which says what the agent waits
	// for.
	Message string
	// Problem is what the message is about. It is "" if the report doesn't name it, or if there is no message.
	Problem problem.Reason
	// Undecodable is the reason why the report's status can't be decoded. Then the other fields of the status are
	// empty.
	Undecodable string
	// policies contains lines with the name of a policy, "=", and its verdict. Names can't contain "=".
	policies string
	// detail is a [Detail] in JSON, or "" if it isn't kept.
	detail string
}

// Policies yields the verdicts of BytecodePolicies, by name.
func (s State) Policies() iter.Seq2[string, v1alpha1.PolicyVerdict] {
	return func(yield func(string, v1alpha1.PolicyVerdict) bool) {
		for line := range strings.Lines(s.policies) {
			name, verdict, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			if !yield(name, v1alpha1.PolicyVerdict(verdict)) {
				return
			}
		}
	}
}

// WithPolicies returns the state with the verdicts of BytecodePolicies.
func (s State) WithPolicies(said []v1alpha1.BpfProgramPolicy) State {
	var lines strings.Builder
	for _, p := range said {
		lines.WriteString(p.Name + "=" + string(p.Verdict) + "\n")
	}
	s.policies = lines.String()
	return s
}

// Kind returns the kind of the report.
func (r *Report) Kind() v1alpha1.Kind[v1alpha1.ProgramObject] {
	return v1alpha1.ProgramKind(r.Namespace() != "")
}

// Namespace returns the namespace, or "" for a BpfProgram.
func (r *Report) Namespace() string { return r.Owner.Value().Namespace }

// GetObjectKind implements [runtime.Object], so that a reflector accepts reports as items of a list.
func (r *Report) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (r *Report) DeepCopyObject() runtime.Object { return r }
