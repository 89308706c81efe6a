// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/operator/contest"
)

// writeTimeout bounds the writes for one object.
const writeTimeout = 10 * time.Second

// Objects removes the finalizers of upstream's operator from user objects. Their deletion would otherwise never
// finish. There is one Objects for each kind.
type Objects struct {
	Client    client.Client
	Recorder  events.EventRecorder
	Announcer *Announcer
	// Contests is shared by all kinds.
	Contests *contest.Ledger[types.UID]
	Kind     v1alpha1.Kind[v1alpha1.UserObject]
}

// SetupWithManager watches the objects of the kind that have such a finalizer.
func (r *Objects) SetupWithManager(mgr ctrl.Manager) error {
	held := predicate.NewPredicateFuncs(func(o client.Object) bool { return len(Finalizers(o)) > 0 })
	return ctrl.NewControllerManagedBy(mgr).
		Named("takeover-"+strings.ToLower(r.Kind.Name)).
		For(r.Kind.New(), builder.WithPredicates(held)).
		Complete(r)
}

// Reconcile removes the finalizers of one object.
func (r *Objects) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	object := r.Kind.New()
	if err := r.Client.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// No finalizer can be added to an object that is being deleted.
	deleting := !object.GetDeletionTimestamp().IsZero()
	if wait := r.Contests.Wait(object.GetUID()); wait > 0 && !deleting {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	removed, err := RemoveFinalizers(ctx, r.Client, object)
	if err != nil || len(removed) == 0 {
		return reconcile.Result{}, err
	}
	event.Emit(r.Recorder, object, corev1.EventTypeNormal, ReasonTakenOver, action,
		"Removed the finalizer "+strings.Join(removed, ", ")+" of upstream's operator")
	if r.Contests.Repeated(object.GetUID()) {
		r.Announcer.AnotherOperator(ctx, fmt.Sprintf("The finalizer %s reappears on %s %s each time it is removed",
			strings.Join(removed, ", "), r.Kind.Name, request))
	}
	return reconcile.Result{}, nil
}
