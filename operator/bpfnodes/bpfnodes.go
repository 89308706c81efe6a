// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpfnodes deletes BpfNodes that no inspector updates, because the inspector is disabled, or no longer
// runs on that node. The garbage collector deletes the BpfNodes of deleted nodes, because the Node is their
// owner.
package bpfnodes

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
)

const (
	passTimeout = 30 * time.Second
	// unlistedRetry is the delay before a BpfNode is reconciled again if BpfNodes haven't been listed yet.
	unlistedRetry = time.Second
)

// Reconciler deletes the BpfNode of a node if no inspector runs there, or is going to.
type Reconciler struct {
	Client    client.Client
	Namespace string
}

// Metadata returns an empty object for reading a BpfNode without its status, which is large and not needed here.
func Metadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(v1alpha1.NodeKind.GroupVersionKind())
	return o
}

// SetupWithManager watches BpfNodes, and everything that can make one unnecessary.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	named := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return request(o.GetName()) })
	ofPod := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if pod, ok := o.(*corev1.Pod); ok {
			return request(pod.Spec.NodeName)
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("bpfnodes").
		WatchesRawSource(kindcache.Source(mgr.GetCache(), Metadata(), named)).
		Watches(&corev1.Node{}, named, builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.Funcs{UpdateFunc: taintsChanged}))).
		Watches(&corev1.Pod{}, ofPod).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

func taintsChanged(update event.UpdateEvent) bool {
	before, isBefore := update.ObjectOld.(*corev1.Node)
	after, isAfter := update.ObjectNew.(*corev1.Node)
	return isBefore && isAfter && !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

func request(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// all returns requests for all BpfNodes.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.NodeKind.Name + "List"))
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache isn't synced yet: each BpfNode causes its own event later
	}
	var found []reconcile.Request
	for i := range list.Items {
		found = append(found, request(list.Items[i].Name)...)
	}
	return found
}

// Reconcile checks the BpfNode of one node.
func (r *Reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	found := Metadata()
	if err := r.Client.Get(ctx, q.NamespacedName, found); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get BpfNode %s: %w", q.Name, err)
	}
	kept, err := r.kept(ctx, q.NamespacedName)
	if err != nil || kept {
		return reconcile.Result{}, err
	}
	uid := found.GetUID()
	if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete BpfNode %s of a node without an inspector: %w", q.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted the BpfNode of a node without an inspector", "node", q.Name)
	return reconcile.Result{}, nil
}

// kept reports whether an inspector writes the BpfNode of a node, or is going to.
func (r *Reconciler) kept(ctx context.Context, name types.NamespacedName) (bool, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, name, node); apierrors.IsNotFound(err) {
		return true, nil // the garbage collector deletes it
	} else if err != nil {
		return false, fmt.Errorf("get Node %s: %w", name.Name, err)
	}
	daemonSet := &appsv1.DaemonSet{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: deploy.DaemonSetName}, daemonSet)
	if apierrors.IsNotFound(err) {
		daemonSet = nil
	} else if err != nil {
		return false, fmt.Errorf("get DaemonSet %s: %w", deploy.DaemonSetName, err)
	}
	if toRun(daemonSet, node) {
		return true, nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the pods of the node components: %w", err)
	}
	return runs(pods.Items, node), nil
}

// toRun reports whether the DaemonSet, which can be nil, runs an inspector on the node.
func toRun(daemonSet *appsv1.DaemonSet, node *corev1.Node) bool {
	if daemonSet == nil {
		return false
	}
	pod := daemonSet.Spec.Template.Spec
	return labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(node.Labels)) && tolerates(pod.Tolerations, node.Spec.Taints) &&
		slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == deploy.InspectorContainer })
}

// temporary are the taints of which the DaemonSet controller tolerates some in all pods, and the others soon end.
var temporary = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure,
	corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// tolerates reports whether pods with the tolerations can run on a node with the taints.
func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(temporary, taint.Key) &&
			!slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) })
	})
}

// runs reports whether one of the pods has an inspector on the node that hasn't terminated, and so can still
// write.
func runs(pods []corev1.Pod, node *corev1.Node) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName == node.Name && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == deploy.InspectorContainer && s.State.Terminated == nil
		})
	})
}
