// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package upstream

import (
	"fmt"
	"hash/fnv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Report returns the report that upstream's agent writes about an owner at one attach point of a
// node. Its conditions are ReportConditions.
func Report(kind string, owner v1alpha1.UserObject, node, attachPoint string) v1alpha1.ProgramObject {
	var report v1alpha1.ProgramObject = &v1alpha1.BpfProgram{}
	if owner.GetNamespace() != "" {
		report = &v1alpha1.BpfNsProgram{}
	}
	controller := strings.ToLower(kind) + "controller"
	report.SetNamespace(owner.GetNamespace())
	// Upstream's suffix is random.
	suffix := fnv.New32a()
	suffix.Write([]byte(node + attachPoint))
	report.SetName(fmt.Sprintf("%s-%08x", owner.GetName(), suffix.Sum32()))
	report.SetLabels(map[string]string{
		v1alpha1.LabelOwnedByProgram: owner.GetName(), v1alpha1.LabelAppProgramID: "", v1alpha1.LabelHostname: node,
	})
	report.SetAnnotations(map[string]string{
		"bpfman.io/bpfProgramAttachPoint":        attachPoint,
		v1alpha1.AnnotationProgramID:             "4711",
		"bpfman.io." + controller + "/interface": attachPoint,
	})
	report.SetFinalizers([]string{ReportFinalizer(kind)})
	report.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}})
	report.GetSpec().Type = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(kind), "program"), "ns")
	return report
}

// ReportConditions returns the conditions of a report about a loaded program.
func ReportConditions() []metav1.Condition {
	return []metav1.Condition{{
		Type: "Loaded", Status: metav1.ConditionTrue, Reason: "bpfmanLoaded", Message: "Successfully loaded bpfProgram", LastTransitionTime: metav1.Now(),
	}}
}

// Conditions returns the conditions of a user object that is loaded everywhere, or is still waiting
// for nodes.
func Conditions(loaded bool) []metav1.Condition {
	c := metav1.Condition{
		Type: "NotYetLoaded", Status: metav1.ConditionTrue, Reason: "ProgramsNotYetLoaded",
		Message: "Waiting for Program Object to be reconciled to all nodes", LastTransitionTime: metav1.Now(),
	}
	if loaded {
		c.Type, c.Reason, c.Message = "ReconcileSuccess", "ReconcileSuccess", "bpfProgramReconciliation Succeeded on all nodes"
	}
	return []metav1.Condition{c}
}
