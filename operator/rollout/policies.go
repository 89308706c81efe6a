// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
)

const (
	fieldManager = "bpfman-operator"
	passTimeout  = 10 * time.Second
)

// Policies writes the status of RolloutPolicies.
type Policies struct{ Client client.Client }

// SetupWithManager watches the policies.
func (r *Policies) SetupWithManager(mgr ctrl.Manager) error {
	object := handler.TypedEnqueueRequestForObject[client.Object]{}
	watched := source.TypedKind(mgr.GetCache(), client.Object(v1alpha1.RolloutPolicyKind.New()), &object)
	return ctrl.NewControllerManagedBy(mgr).Named("rolloutpolicies").WatchesRawSource(kindcache.Source(watched)).Complete(r)
}

// Reconcile updates the status of one policy.
func (r *Policies) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	var object v1alpha1.RolloutPolicy
	if err := r.Client.Get(ctx, q.NamespacedName, &object); apierrors.IsNotFound(err) || kinds.Unread(err) {
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get RolloutPolicy %s: %w", q.Name, err)
	}
	want := v1alpha1.RolloutPolicyStatus{ObservedGeneration: object.Generation, Conditions: slices.Clone(object.Status.Conditions)}
	ready := metav1.Condition{
		Type: string(v1alpha1.Ready), Status: metav1.ConditionTrue, ObservedGeneration: object.Generation,
		Reason: v1alpha1.PolicyReasonReady, Message: "Changes of matching objects are rolled out in steps",
	}
	if problems := policy.CompileRollout(&object).Problems(); len(problems) > 0 {
		ready.Reason, ready.Message = v1alpha1.PolicyReasonInvalid, strings.Join(problems, "; ")
		stalled := ready
		ready.Status, stalled.Type = metav1.ConditionFalse, string(v1alpha1.Stalled)
		v1alpha1.SetConditions(&want.Conditions, ready, stalled)
	} else {
		v1alpha1.SetConditions(&want.Conditions, ready)
	}
	if equality.Semantic.DeepEqual(want, object.Status) {
		return reconcile.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": want})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encode status of RolloutPolicy %s: %w", object.Name, err)
	}
	written := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return reconcile.Result{}, fmt.Errorf("write status of RolloutPolicy %s: %w", object.Name, err)
	}
	return reconcile.Result{}, nil
}
