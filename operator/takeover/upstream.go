// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package takeover deals with what upstream's operator and agent of v0.5 leave in a cluster, so that this operator can
// take their place there: finalizers that nobody is left to remove, reports that no agent of ours wrote, and roles that
// nothing uses any more.
package takeover

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Reasons of Events.
const (
	// ReasonTakenOver: something that upstream's operator or agent owned isn't theirs any more.
	ReasonTakenOver = "TakenOver"
	// ReasonAnotherOperator: somebody undoes what the operator writes, most likely another operator.
	ReasonAnotherOperator = "AnotherOperator"

	action = "TakeOver"
)

// FieldManager is what upstream's operator is called in managedFields. It is the name of its command, as ours is, but
// its operation is Update, where ours is Apply.
const FieldManager = "bpfman-operator"

// attachPointAnnotation is on each BpfProgram of upstream's agent, and on none of ours.
const attachPointAnnotation = "bpfman.io/bpfProgramAttachPoint"

// isFinalizer recognises the finalizers of upstream's controllers, such as bpfman.io.operator/finalizer and
// bpfman.io.xdpprogramcontroller/finalizer. Ours has none.
func isFinalizer(name string) bool {
	return strings.HasPrefix(name, "bpfman.io.") && strings.HasSuffix(name, "/finalizer")
}

// Finalizers returns upstream's finalizers of an object.
func Finalizers(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(name string) bool { return !isFinalizer(name) })
}

// others are the finalizers that aren't upstream's.
func others(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), isFinalizer)
}

// IsReport tells whether upstream's agent wrote a BpfProgram or BpfNsProgram. Ours have a label from the start that
// upstream's lack.
func IsReport(o metav1.Object) bool {
	_, ours := o.GetLabels()[v1alpha1.LabelOwnerKind]
	_, theirs := o.GetAnnotations()[attachPointAnnotation]
	return !ours && (theirs || len(Finalizers(o)) > 0)
}
