// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// admitting is the admission of namespaces' lives: nothing is created in a namespace that doesn't exist, or is deleted.
type admitting struct{}

var _ admission.ValidationInterface = admitting{}

// Handles implements [admission.Interface].
func (admitting) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Validate implements [admission.ValidationInterface].
func (admitting) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		return nil
	}
	s := callerOf(ctx).server
	r := s.handlers.resources[schema.GroupResource{Resource: "namespaces"}]
	found := s.current(r, key(r.prefix, "", a.GetNamespace()))
	if found == nil {
		return apierrors.NewNotFound(r.group, a.GetNamespace())
	}
	if namespace, ok := found.Object.(*corev1.Namespace); !ok || namespace.DeletionTimestamp == nil {
		return nil
	}
	err := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	if known, ok := err.(*apierrors.StatusError); ok { //nolint:errorlint // it was just made
		known.ErrStatus.Details.Causes = append(known.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()), Field: "metadata.namespace",
		})
	}
	return err
}
