// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
)

// Rollouts writes the status of RolloutPolicies: whether they are valid.
type Rollouts struct{ Client client.Client }

// SetupWithManager watches the policies.
func (r *Rollouts) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("rolloutpolicies").
		WatchesRawSource(kindcache.Source(mgr.GetCache(), v1alpha1.RolloutPolicyKind.New(), &handler.EnqueueRequestForObject{})).
		Complete(r)
}

// Reconcile updates the status of one policy.
func (r *Rollouts) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	var object v1alpha1.RolloutPolicy
	if err := r.Client.Get(ctx, q.NamespacedName, &object); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get RolloutPolicy %s: %w", q.Name, err)
	}
	want := v1alpha1.RolloutPolicyStatus{ObservedGeneration: object.Generation}
	want.Conditions, want.Problem = conditions(object.Status.Conditions, object.Generation, policy.CompileRollout(&object).Problems(),
		"Changes of matching objects are rolled out in steps")
	if equality.Semantic.DeepEqual(want, object.Status) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, writeStatus(ctx, r.Client, v1alpha1.RolloutPolicyKind.Name, &object, want)
}
