// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package reports keeps what the operator needs of each BpfProgram and BpfNsProgram, and no more: there is one for each
// program on each node. Its controllers get every change of them from one [Store].
package reports

import (
	"iter"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Report is what is kept of one BpfProgram or BpfNsProgram. It never changes: another takes its place.
//
// What many reports have in common is stored once. Only the name and the UID differ between the reports of one object
// that is attached everywhere.
type Report struct {
	Name string
	UID  types.UID
	// Owner is the user object that the report is about.
	Owner unique.Handle[Owner]
	Node  unique.Handle[Node]
	State unique.Handle[State]
	// Foreign tells that the last write wasn't by an agent.
	Foreign bool
}

// Owner is a user object. Apart from the namespace, all is "" where a report has no controller.
type Owner struct {
	Kind, Namespace, Name string
	UID                   types.UID
}

// Node is the node that a report is from.
type Node struct {
	// Label is the value of the report's label, see [v1alpha1.LabelValue].
	Label string
	// Name is the name of the node as the agent reports it, "" until it has.
	Name string
}

// State is what a report says.
type State struct {
	// Kind is the owner's as the label has it. Reports of upstream's agents have none.
	Kind string
	// Member is an application's member that the report is about, "" otherwise.
	Member string
	// Generation is the owner's metadata.generation that the agent has acted on.
	Generation int64
	// Condition is "" until the agent has reported.
	Condition v1alpha1.BpfProgramConditionType
	// Message is the condition's, of at most 600 bytes; "" for conditions that aren't failures.
	Message string
	// Undecodable says why the report can't be decoded. Then nothing else is known of its status.
	Undecodable string
	// policies are lines of a policy's name and its verdict, which no name contains "=" of.
	policies string
}

// Policies are what BytecodePolicies say, by name.
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

// WithPolicies is the state with what BytecodePolicies say.
func (s State) WithPolicies(said []v1alpha1.BpfProgramPolicy) State {
	var lines strings.Builder
	for _, p := range said {
		lines.WriteString(p.Name + "=" + string(p.Verdict) + "\n")
	}
	s.policies = lines.String()
	return s
}

// Kind is the report's own.
func (r *Report) Kind() v1alpha1.Kind[v1alpha1.ProgramObject] { return kindOf(r.Namespace() != "") }

// Namespace is "" for a BpfProgram.
func (r *Report) Namespace() string { return r.Owner.Value().Namespace }

// kindOf returns the kind of the reports of a scope.
func kindOf(namespaced bool) v1alpha1.Kind[v1alpha1.ProgramObject] {
	for _, k := range v1alpha1.ProgramKinds {
		if k.Namespaced == namespaced {
			return k
		}
	}
	panic("reports: a scope has no kind of reports")
}

// GetObjectKind implements [runtime.Object], so that a reflector takes reports as items of a list.
func (r *Report) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (r *Report) DeepCopyObject() runtime.Object { return r }
