// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// findKinds is the default of [Options.FindKinds].
const findKinds = 4 * time.Minute

// Run runs the controller until ctx ends. OnConnect calls a function each time the daemon
// becomes reachable, until its context ends. Run returns an error if the agent can't work on
// this node.
func (r *Controller) Run(ctx context.Context, onConnect func(context.Context, func())) error {
	tasks, ctx := errgroup.WithContext(ctx)
	background := func(f func(context.Context)) {
		tasks.Go(func() error {
			f(ctx)
			return nil
		})
	}
	background(r.Cluster.Events.Run)
	r.watch(ctx, background)
	background(func(ctx context.Context) { onConnect(ctx, func() { r.daemonReturned(ctx) }) })
	background(r.lookIntoPods)
	background(func(ctx context.Context) { r.retire(ctx, replacedWithin) })
	background(func(ctx context.Context) {
		node.WatchInterfaces(ctx,
			func() { r.enqueue(ctx, func(n program.Needs) bool { return n.Interfaces }) },
			func(err error) {
				logr.FromContextOrDiscard(ctx).Error(err, "Failed to watch network interfaces; changes are detected late")
			})
	})
	tasks.Go(func() error { return r.compare(ctx) })
	for range workers {
		background(func(ctx context.Context) { r.queue.work(ctx, r.Reconcile) })
	}
	background(func(ctx context.Context) {
		<-ctx.Done()
		r.queue.ShutDown()
	})
	return tasks.Wait()
}

// watch watches the objects that plans depend on: some kinds from the start, others after
// they are opened. Background starts a function in a goroutine.
func (r *Controller) watch(ctx context.Context, background func(func(context.Context))) {
	r.reports.Start(background)
	open := func(gvk schema.GroupVersionKind, handler toolscache.ResourceEventHandler, listed func()) func() {
		return func() { r.Cluster.Watch(ctx, gvk, handler, listed) }
	}
	for _, kind := range v1alpha1.UserKinds {
		gvk := kind.GroupVersionKind()
		r.Cluster.Kinds.OnDemand(gvk, open(gvk, r.onUserObject(kind.Name), func() { r.onListed(kind.Name) }))
		background(func(ctx context.Context) {
			r.Cluster.Kinds.Find(ctx, gvk, kind.Resource(), cmp.Or(r.FindKinds, findKinds))
		})
	}
	rollouts := v1alpha1.RolloutPolicyKind
	all := r.onRolloutPolicy(func() { r.enqueue(ctx, func(program.Needs) bool { return true }) })
	r.Cluster.Kinds.OnDemand(rollouts.GroupVersionKind(), open(rollouts.GroupVersionKind(), all, nil))
	r.Cluster.Kinds.Optional(rollouts.GroupVersionKind())
	background(func(ctx context.Context) {
		r.Cluster.Kinds.Find(ctx, rollouts.GroupVersionKind(), rollouts.Resource(), cmp.Or(r.FindKinds, findKinds))
	})
	r.Cluster.Kinds.OnDemand(cluster.PodKind, open(cluster.PodKind, r.onPod(ctx), nil))
	r.Cluster.Kinds.Optional(cluster.PodKind)
	r.Cluster.Watch(ctx, cluster.NodeKind, r.onNode(ctx), nil)
	r.Cluster.Watch(ctx, v1alpha1.PolicyKind.GroupVersionKind(), r.onPolicy(ctx), nil)
	if r.Namespace != "" {
		r.Cluster.Kinds.Optional(cluster.ConfigMapKind)
		r.Cluster.Watch(ctx, cluster.ConfigMapKind, r.onHints(), nil)
	}
}

// onListed enqueues the owners of the daemon's programs after their kind has been listed. An
// owner that was deleted before that has no event.
func (r *Controller) onListed(kind string) {
	for _, key := range append(r.Inventory.Owners(), r.Changes.Keys()...) {
		if key.Kind == kind {
			r.queue.Add(key)
		}
	}
}

// handler handles events about objects of type O. Each of its functions can be nil.
type handler[O metav1.Object] struct {
	// added is called with initial set for the objects of the first list.
	added   func(now O, initial bool)
	updated func(before, now O)
	deleted func(last O)
}

// OnAdd implements [toolscache.ResourceEventHandler].
func (h handler[O]) OnAdd(now any, initial bool) {
	if now, ok := now.(O); ok && h.added != nil {
		h.added(now, initial)
	}
}

// OnUpdate implements [toolscache.ResourceEventHandler].
func (h handler[O]) OnUpdate(before, now any) {
	old, ok := before.(O)
	if now, ok2 := now.(O); ok && ok2 && h.updated != nil {
		h.updated(old, now)
	}
}

// OnDelete implements [toolscache.ResourceEventHandler].
func (h handler[O]) OnDelete(last any) {
	if missed, ok := last.(toolscache.DeletedFinalStateUnknown); ok {
		last = missed.Obj
	}
	if last, ok := last.(O); ok && h.deleted != nil {
		h.deleted(last)
	}
}

// onUserObject enqueues an owner if its spec has changed or its deletion has started.
func (r *Controller) onUserObject(kind string) toolscache.ResourceEventHandler {
	add := func(o v1alpha1.UserObject) {
		r.queue.Add(program.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	return handler[v1alpha1.UserObject]{
		added: func(now v1alpha1.UserObject, _ bool) { add(now) },
		updated: func(before, now v1alpha1.UserObject) {
			if changed(before, now) {
				add(now)
			}
		},
		deleted: add,
	}
}

// changed reports whether the wanted state of a user object on this node can have changed.
func changed(before, now v1alpha1.UserObject) bool {
	annotations := func(o metav1.Object) [2]string {
		return [2]string{o.GetAnnotations()[v1alpha1.AnnotationReplacePinnedMaps], o.GetAnnotations()[v1alpha1.AnnotationRestartedAt]}
	}
	another := before.GetUID() != now.GetUID()
	spec := before.GetGeneration() != now.GetGeneration()
	return another || spec || annotations(before) != annotations(now) || now.GetDeletionTimestamp() != nil ||
		!equality.Semantic.DeepEqual(before.GetStatus().Rollout, now.GetStatus().Rollout)
}

// onNode enqueues all owners if the labels or addresses of the agent's node have changed. If
// the Node was created again, it also requests a list of reports, because the operator
// deletes the reports of a deleted node.
func (r *Controller) onNode(ctx context.Context) toolscache.ResourceEventHandler {
	all := func() { r.enqueue(ctx, func(program.Needs) bool { return true }) }
	return handler[*corev1.Node]{
		added: func(_ *corev1.Node, initial bool) {
			if !initial {
				r.reports.Relist(0)
			}
			all()
		},
		updated: func(before, now *corev1.Node) {
			if !equality.Semantic.DeepEqual(before.Labels, now.Labels) || !equality.Semantic.DeepEqual(before.Status.Addresses, now.Status.Addresses) {
				all()
			}
		},
	}
}

// onPod enqueues the owners that select containers if a pod's labels, phase, or containers
// have changed.
func (r *Controller) onPod(ctx context.Context) toolscache.ResourceEventHandler {
	changed := func() { r.enqueue(ctx, func(n program.Needs) bool { return n.Containers }) }
	return handler[*corev1.Pod]{
		added: func(*corev1.Pod, bool) { changed() },
		updated: func(before, now *corev1.Pod) {
			if !maps.Equal(before.Labels, now.Labels) || before.Status.Phase != now.Status.Phase || !slices.Equal(running(before), running(now)) {
				changed()
			}
		},
		deleted: func(*corev1.Pod) { changed() },
	}
}

// running returns the IDs of a pod's running containers.
func running(pod *corev1.Pod) []string {
	var ids []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.State.Running != nil {
			ids = append(ids, s.ContainerID)
		}
	}
	return ids
}

// daemonReturned enqueues all owners after a reconnection: the daemon might have lost
// programs, and failed steps can succeed now.
func (r *Controller) daemonReturned(ctx context.Context) {
	r.loader.Retry()
	r.Inventory.Doubt()
	for _, key := range r.Inventory.Owners() {
		r.queue.Add(key)
	}
	r.enqueue(ctx, func(program.Needs) bool { return true })
	// Only the daemon knows about owners without objects and reports.
	if err := r.ensureInventory(ctx); err != nil {
		logr.FromContextOrDiscard(ctx).Info("Failed to list the daemon's programs; retrying", "reason", err.Error())
	}
}

// podInterfaces is the interval of checks of the interfaces in pods, for owners that
// discover them. Netlink messages about other network namespaces require CAP_NET_BROADCAST,
// which the agent doesn't have.
const podInterfaces = 10 * time.Second

// lookIntoPods enqueues the owners that discover interfaces in pods periodically, until ctx
// ends.
func (r *Controller) lookIntoPods(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		r.enqueue(ctx, func(n program.Needs) bool { return n.PodInterfaces })
	}, podInterfaces)
}

// enqueue enqueues the owners that a change affects.
func (r *Controller) enqueue(ctx context.Context, affected func(program.Needs) bool) {
	for _, kind := range v1alpha1.UserKinds {
		objects, err := r.Cluster.UserObjects(kind.Name)
		if kinds.Unread(err) {
			continue // its objects are enqueued when they are read
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list objects from the cache", "kind", kind.Name)
			continue
		}
		for _, o := range objects {
			if owner := program.OwnerOf(kind.Name, o); affected(owner.Needs()) {
				r.queue.Add(owner.Key)
			}
		}
	}
}

// enqueueSharers enqueues the owners that use maps of other programs.
func (r *Controller) enqueueSharers() {
	r.sharers.Range(func(key, _ any) bool {
		r.queue.Add(key.(program.Key)) //nolint:errcheck // the map only has this type
		return true
	})
}

// onPolicy enqueues all owners if a policy or its material has changed.
func (r *Controller) onPolicy(ctx context.Context) toolscache.ResourceEventHandler {
	all := func() { r.enqueue(ctx, func(program.Needs) bool { return true }) }
	return handler[*v1alpha1.BytecodePolicy]{
		added: func(*v1alpha1.BytecodePolicy, bool) { all() },
		updated: func(before, now *v1alpha1.BytecodePolicy) {
			if before.UID != now.UID || gate.VersionOf(before) != gate.VersionOf(now) {
				all()
			}
		},
		deleted: func(*v1alpha1.BytecodePolicy) { all() },
	}
}
