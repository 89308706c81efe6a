// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
)

// tell emits an Event about the user object if a program starts to fail, fails for
// another reason, recovers, or is reloaded. The operator reports the first success, once
// for all nodes.
func (r *Reports) tell(key program.Key, object v1alpha1.ProgramObject, before *v1alpha1.BpfProgramStatus) {
	if len(object.GetStatus().Conditions) == 0 {
		return
	}
	owner, err := r.Cluster.UserObject(key.Kind, key.Namespace, key.Name)
	if err != nil {
		return // the object has been deleted, or can't be read
	}
	is := object.GetStatus().Conditions[0]
	var was metav1.Condition
	if len(before.Conditions) > 0 {
		was = before.Conditions[0]
	}
	r.tellWarned(owner, object, before)
	failed := func(c metav1.Condition) bool { return v1alpha1.BpfProgramConditionType(c.Type).Failed() }
	function := object.GetStatus().Function
	switch id := object.GetStatus().ProgramID; {
	case failed(is) && is.Message != was.Message:
		cause, _, _ := strings.Cut(is.Message, "\n") // the report has the rest, such as the log of the kernel's verifier
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeWarning, is.Type, "Load",
			fmt.Sprintf("Program %s %s on node %s%s: %s", function, failure(is), r.NodeName, named(object.GetStatus().Problem), cause))
	case failed(was) && !failed(is) && is.Type != string(v1alpha1.BpfProgCondNone):
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeNormal, is.Type, "Load",
			fmt.Sprintf("Program %s recovered on node %s", function, r.NodeName))
	case before.ProgramID != 0 && before.ProgramID != id:
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeNormal, "Reloaded", "Load",
			fmt.Sprintf("Reloaded program %s on node %s: program %d replaced program %d", function, r.NodeName, id, before.ProgramID))
	}
}

// failure describes a failed condition.
func failure(c metav1.Condition) string {
	if v1alpha1.BpfProgramConditionType(c.Type) == v1alpha1.BpfProgCondPolicyViolated {
		return "violates a policy"
	}
	return "failed"
}

// named returns the problem in parentheses, by which docs/status.md has the remedy. It returns "" if there is no name.
func named(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + problem + ")"
}

// reasonWarned is the reason of Events about policies in mode warn that would deny a
// program.
const reasonWarned = "PolicyWarned"

// tellWarned emits an Event if the program starts to violate a policy in mode warn, or
// violates it for another reason.
func (r *Reports) tellWarned(owner v1alpha1.UserObject, object v1alpha1.ProgramObject, before *v1alpha1.BpfProgramStatus) {
	said := func(s *v1alpha1.BpfProgramStatus) []v1alpha1.BpfProgramPolicy {
		if s.Bytecode == nil {
			return nil
		}
		return s.Bytecode.Policies
	}
	for _, is := range said(object.GetStatus()) {
		told := slices.ContainsFunc(said(before), func(was v1alpha1.BpfProgramPolicy) bool {
			return was.Name == is.Name && was.Verdict == is.Verdict && was.Message == is.Message
		})
		if is.Verdict == v1alpha1.VerdictWarned && !told {
			event.Emit(r.Cluster.Events, owner, corev1.EventTypeWarning, reasonWarned, "Load",
				fmt.Sprintf("Policy %s would deny program %s on node %s in mode enforce: %s", is.Name, object.GetStatus().Function, r.NodeName, is.Message))
		}
	}
}

// reasonNotReported is the reason of Events about reports that the API server refuses.
const reasonNotReported = "NotReported"

// tellRefused emits an Event about the user object if the API server refuses one of its reports, for example because of
// a ResourceQuota. The object's status can't say so, because it is a sum of the reports.
func (r *Reports) tellRefused(owner program.Owner, failures []error) {
	i := slices.IndexFunc(failures, apierrors.IsForbidden)
	if i < 0 {
		return
	}
	object, err := r.Cluster.UserObject(owner.Kind, owner.Namespace, owner.Name)
	if err != nil {
		return // the object has been deleted, or can't be read
	}
	event.Emit(r.Cluster.Events, object, corev1.EventTypeWarning, reasonNotReported, "Report",
		fmt.Sprintf("Can't report its programs on node %s: %v", r.NodeName, failures[i]))
}
