// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package takeover removes what upstream's operator and agent of v0.5 leave in a cluster, so that this operator
// can replace them: finalizers that no controller removes, reports that no current agent wrote, and unused roles. It
// also removes roles of v0.6.
//
// Release v0.8.0 removes what is for v0.5.
package takeover

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Reasons of Events.
const (
	// ReasonTakenOver means that this operator now owns something that upstream's operator or agent owned.
	ReasonTakenOver = "TakenOver"
	// ReasonNotTakenOver means that a value of upstream's ConfigMap has no effect, because it is unknown or invalid, or
	// because the installation sets another one.
	ReasonNotTakenOver = "NotTakenOver"
	// ReasonAnotherOperator means that another client, probably another operator, reverts what the operator
	// writes.
	ReasonAnotherOperator = "AnotherOperator"

	action = "TakeOver"
)

// FieldManager is the name of upstream's operator in managedFields. It comes from the name of the command, so this
// operator has the same name. Upstream's operation is Update, and this operator's is Apply.
const FieldManager = "bpfman-operator"

// attachPointAnnotation is an annotation of each BpfProgram that upstream's agent wrote. This project's agent
// doesn't set it.
const attachPointAnnotation = "bpfman.io/bpfProgramAttachPoint"

// isFinalizer recognizes the finalizers of upstream's controllers, such as bpfman.io.operator/finalizer and
// bpfman.io.xdpprogramcontroller/finalizer. This operator has none.
func isFinalizer(name string) bool {
	return strings.HasPrefix(name, "bpfman.io.") && strings.HasSuffix(name, "/finalizer")
}

// Finalizers returns the object's finalizers that are upstream's.
func Finalizers(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(name string) bool { return !isFinalizer(name) })
}

// others returns the object's finalizers that aren't upstream's.
func others(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), isFinalizer)
}

// IsReport reports whether upstream's agent wrote a BpfProgram or BpfNsProgram. Reports of this project's agent
// always have a label that upstream's lack.
func IsReport(o metav1.Object) bool {
	_, ours := o.GetLabels()[v1alpha1.LabelOwnerKind]
	_, theirs := o.GetAnnotations()[attachPointAnnotation]
	return !ours && (theirs || len(Finalizers(o)) > 0)
}
