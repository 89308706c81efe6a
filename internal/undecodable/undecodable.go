// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package undecodable marks objects in memory that can't be decoded, for example because they were stored under
// another version's schema. Such an object only has its metadata and, if that can be decoded, its status.
package undecodable

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotation is the mark. It isn't valid as a key in the API, so that users can't set it.
const Annotation = "!undecodable"

// Reason returns the reason why an object can't be decoded, or "".
func Reason(o metav1.Object) string { return o.GetAnnotations()[Annotation] }

// Mark marks an object with the reason why it can't be decoded.
func Mark(o metav1.Object, reason error) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Annotation] = reason.Error()
	o.SetAnnotations(annotations)
}
