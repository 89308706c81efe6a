// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/operator/pace"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	// Annotation is the ConfigMap's annotation with the current problems of the node components.
	Annotation = "bpfman.io/problems"
	// ReasonProblem is the reason of the Event about new problems.
	ReasonProblem = "NodeComponentsFail"

	passTimeout = 10 * time.Second
	// writePace is the minimum interval between writes in a small cluster.
	writePace = time.Second
)

// Reconciler keeps the annotation of the ConfigMap up to date.
type Reconciler struct {
	Client    client.Client
	Recorder  events.EventRecorder
	ConfigMap types.NamespacedName
	// Version is the version of the operator.
	Version string
	Clock   clock.PassiveClock

	// Reconciliations don't run concurrently.
	wroteAt time.Time
}

// SetupWithManager watches the node pods. The manager's cache contains no other pods.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.ConfigMap}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("nodes").Watches(&corev1.Pod{}, one).Complete(r)
}

// Reconcile checks all node pods.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	configMap := &corev1.ConfigMap{}
	if err := r.Client.Get(ctx, r.ConfigMap, configMap); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pods corev1.PodList
	// Pods of upstream's DaemonSet, which are about to be replaced, lack the label.
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.ConfigMap.Namespace), client.HasLabels{takeover.PartOfLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the pods of the node components: %w", err)
	}
	now := r.Clock.Now()
	if wait := r.wroteAt.Add(pace.Between(writePace, len(pods.Items))).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, r.write(ctx, configMap, Problems(pods.Items, r.Version))
}

// write writes the problems to the annotation, and emits an Event if there are new ones.
func (r *Reconciler) write(ctx context.Context, configMap *corev1.ConfigMap, found []string) error {
	problems := strings.Join(found, "\n")
	if problems == configMap.Annotations[Annotation] {
		return nil
	}
	var value any // null removes it
	if problems != "" {
		value = problems
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": configMap.UID, "annotations": map[string]any{Annotation: value}}})
	if err != nil {
		return fmt.Errorf("encode annotation: %w", err)
	}
	target := configMap.DeepCopy()
	if err := r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the problems of the node components: %w", err)
	}
	r.wroteAt = r.Clock.Now()
	if problems != "" {
		ctrl.LoggerFrom(ctx).Info("Node components have problems", "problems", problems)
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonProblem, "Watch", problems)
	}
	return nil
}
