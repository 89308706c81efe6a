// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	fieldManager = "bpfman-operator"
	maxMessage   = 4096
)

// conditions returns the conditions of a policy: Ready and, if the policy has problems, Stalled. valid is the message
// if it has none. named is the first problem.
func conditions(former []metav1.Condition, generation int64, problems []error, valid string) (wanted []metav1.Condition, named string) {
	wanted = slices.Clone(former)
	ready := metav1.Condition{
		Type: string(v1alpha1.Ready), Status: metav1.ConditionTrue, ObservedGeneration: generation, Reason: v1alpha1.PolicyReasonReady, Message: valid,
	}
	if len(problems) == 0 {
		v1alpha1.SetConditions(&wanted, ready)
		return wanted, ""
	}
	texts := make([]string, 0, len(problems))
	for _, p := range problems {
		texts = append(texts, p.Error())
	}
	ready.Reason, ready.Message = v1alpha1.PolicyReasonInvalid, shorten.Middle(strings.Join(texts, "; "), maxMessage)
	stalled := ready
	ready.Status, stalled.Type = metav1.ConditionFalse, string(v1alpha1.Stalled)
	v1alpha1.SetConditions(&wanted, ready, stalled)
	return wanted, string(problem.Of(problems[0]))
}

// writeStatus replaces the status of a policy.
func writeStatus(ctx context.Context, c client.Client, kind string, object client.Object, status any) error {
	// With the uid, the API server refuses to write to another policy of the same name.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/uid", "value": object.GetUID()},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return fmt.Errorf("encode status of %s %s: %w", kind, object.GetName(), err)
	}
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
	written.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	err = c.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, and possibly created again, which causes another event
	}
	if err != nil {
		return fmt.Errorf("write status of %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}
