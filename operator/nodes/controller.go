// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/pace"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	// Annotation is the ConfigMap's annotation with the current problems of the node components.
	Annotation = "bpfman.io/problems"
	// ReasonProblem is the reason of the Event about new problems.
	ReasonProblem = "NodeComponentsFail"

	passTimeout = 10 * time.Second
	// unlistedRetry is the delay before the next reconciliation if the Events haven't been listed yet.
	unlistedRetry = time.Second
	// writePace is the minimum interval between writes in a small cluster.
	writePace = time.Second
	// startLimit is how long a container can take to be ready after it was first seen. The daemon, which the agent waits
	// for, is restarted after a hang of this length.
	startLimit = 3 * time.Minute
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
	// unready contains since when containers run and aren't ready, by this process's clock.
	unready map[Container]time.Time
}

// SetupWithManager watches the node pods, their DaemonSet, and the Events about it. The manager's cache contains no others.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.ConfigMap}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("nodes").
		Watches(&corev1.Pod{}, one).Watches(&appsv1.DaemonSet{}, one).
		WatchesRawSource(kindcache.Source(mgr.GetCache(), client.Object(&corev1.Event{}), one)).
		Complete(r)
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
	observed := Observed{Pods: pods.Items, Version: r.Version}
	if err := r.observe(ctx, configMap, &observed); kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	later := r.wait(now, &observed)
	if wait := r.wroteAt.Add(pace.Between(writePace, len(pods.Items))).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{RequeueAfter: later}, r.write(ctx, configMap, observed.Problems())
}

// observe reads what isn't in the pods.
func (r *Reconciler) observe(ctx context.Context, configMap *corev1.ConfigMap, observed *Observed) error {
	if config, _, err := deploy.ParseConfig(configMap.Data); err == nil {
		observed.Servers = config.Servers()
	}
	daemonSet := &appsv1.DaemonSet{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.ConfigMap.Namespace, Name: deploy.DaemonSetName}, daemonSet)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get DaemonSet %s: %w", deploy.DaemonSetName, err)
	}
	observed.DaemonSet = daemonSet
	var about corev1.EventList
	unread := (*kinds.UnreadError)(nil)
	err = r.Client.List(ctx, &about, client.InNamespace(r.ConfigMap.Namespace), client.UnsafeDisableDeepCopy)
	if errors.As(err, &unread) && unread.Err != nil {
		return nil //nolint:nilerr // without the permission, which earlier roles lack, the other problems are known
	}
	if err != nil {
		return fmt.Errorf("list the Events about DaemonSet %s: %w", deploy.DaemonSetName, err)
	}
	observed.Events = about.Items
	return nil
}

// wait records since when containers run and aren't ready. It returns when the next one exceeds the limit, or zero.
func (r *Reconciler) wait(now time.Time, observed *Observed) (next time.Duration) {
	unready := map[Container]time.Time{}
	observed.Unready = map[Container]bool{}
	for i := range observed.Pods {
		for _, status := range observed.Pods[i].Status.ContainerStatuses {
			if status.Ready || status.State.Running == nil {
				continue
			}
			container := Container{observed.Pods[i].UID, status.Name}
			since, known := r.unready[container]
			if !known {
				since = now
			}
			unready[container] = since
			if left := since.Add(startLimit).Sub(now); left <= 0 {
				observed.Unready[container] = true
			} else if next == 0 || left < next {
				next = left
			}
		}
	}
	r.unready = unready
	return next
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
