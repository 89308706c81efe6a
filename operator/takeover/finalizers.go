// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RemoveFinalizers removes upstream's finalizers from an object, and returns them. It returns none if the object
// has none, or if it was changed or deleted in the meantime.
func RemoveFinalizers(ctx context.Context, c client.Client, o client.Object) ([]string, error) {
	removed := Finalizers(o)
	if len(removed) == 0 {
		return nil, nil
	}
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("kind of %s: %w", o.GetName(), err)
	}
	// With the resourceVersion, the patch can't replace a newer list. With the UID, it can't change another object
	// of the same name.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": others(o),
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", o.GetName(), err)
	}
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(gvk)
	target.SetNamespace(o.GetNamespace())
	target.SetName(o.GetName())
	err = c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("remove finalizers %q from %s %s: %w", removed, gvk.Kind, o.GetName(), err)
	}
	return removed, nil
}
