// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// findKinds is the default of [Options.FindKinds].
const findKinds = 4 * time.Minute

// watch watches the objects that plans depend on: some kinds from the start, others after
// they are opened. Background starts a function in a goroutine.
func (c *Controller) watch(ctx context.Context, background func(func(context.Context))) {
	c.reports.Start(background)
	background(func(ctx context.Context) { c.facts.containers.follow(ctx, c.readContainers) })
	background(func(ctx context.Context) { c.facts.podInterfaces.follow(ctx, c.readPodInterfaces) })
	background(c.lookIntoPods)
	open := func(gvk schema.GroupVersionKind, handler toolscache.ResourceEventHandler, listed func()) func() {
		return func() { c.Cluster.Watch(ctx, gvk, handler, listed) }
	}
	for _, kind := range v1alpha1.UserKinds {
		gvk := kind.GroupVersionKind()
		c.Cluster.Kinds.OnDemand(gvk, open(gvk, c.onUserObject(kind.Name), func() { c.onListed(kind.Name) }))
		background(func(ctx context.Context) {
			c.Cluster.Kinds.Find(ctx, gvk, kind.Resource(), cmp.Or(c.FindKinds, findKinds))
		})
	}
	rollouts := v1alpha1.RolloutPolicyKind
	c.Cluster.Kinds.OnDemand(rollouts.GroupVersionKind(), open(rollouts.GroupVersionKind(), c.onRolloutPolicy(ctx), nil))
	c.Cluster.Kinds.Optional(rollouts.GroupVersionKind())
	background(func(ctx context.Context) {
		c.Cluster.Kinds.Find(ctx, rollouts.GroupVersionKind(), rollouts.Resource(), cmp.Or(c.FindKinds, findKinds))
	})
	c.Cluster.Kinds.OnDemand(cluster.PodKind, open(cluster.PodKind, c.onPod(ctx), nil))
	c.Cluster.Kinds.Optional(cluster.PodKind)
	c.Cluster.Watch(ctx, cluster.NodeKind, c.onNode(ctx), nil)
	c.Cluster.Watch(ctx, v1alpha1.PolicyKind.GroupVersionKind(), c.onPolicy(ctx), nil)
	if c.Namespace != "" {
		c.Cluster.Kinds.Optional(cluster.ConfigMapKind)
		c.Cluster.Watch(ctx, cluster.ConfigMapKind, c.onHints(), nil)
	}
}

// onListed enqueues the owners of the daemon's programs after their kind has been listed. An
// owner that was deleted before that has no event.
func (c *Controller) onListed(kind string) {
	for _, key := range append(c.Inventory.Owners(), c.Changes.Keys()...) {
		if key.Kind == kind {
			c.queue.Add(key)
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

// onChange calls do with each object that is added or deleted, or that differs from what it was.
func onChange[O metav1.Object](differs func(before, now O) bool, do func(O)) handler[O] {
	return handler[O]{
		added: func(now O, _ bool) { do(now) },
		updated: func(before, now O) {
			if differs(before, now) {
				do(now)
			}
		},
		deleted: do,
	}
}

// onUserObject enqueues an owner if its spec has changed or its deletion has started.
func (c *Controller) onUserObject(kind string) toolscache.ResourceEventHandler {
	return onChange(changed, func(o v1alpha1.UserObject) {
		c.queue.Add(program.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
	})
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
func (c *Controller) onNode(ctx context.Context) toolscache.ResourceEventHandler {
	return handler[*corev1.Node]{
		added: func(_ *corev1.Node, initial bool) {
			if !initial {
				c.reports.Relist(0)
			}
			c.enqueueAll(ctx)
		},
		updated: func(before, now *corev1.Node) {
			if before.UID != now.UID { // while the watch was interrupted
				c.reports.Relist(0)
				c.enqueueAll(ctx)
			} else if !equality.Semantic.DeepEqual(before.Labels, now.Labels) || !equality.Semantic.DeepEqual(before.Status.Addresses, now.Status.Addresses) {
				c.enqueueAll(ctx)
			}
		},
	}
}

// onPod has the containers read if a pod's labels, phase, or containers have changed, and an object selects it. A pod that
// was deleted can have containers with other labels.
func (c *Controller) onPod(ctx context.Context) toolscache.ResourceEventHandler {
	selected := func(pods ...*corev1.Pod) {
		if c.anyOwner(ctx, func(owner program.Owner) bool {
			return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return owner.SelectsPod(pod.Namespace, pod.Labels) })
		}) {
			c.facts.containers.refresh()
		}
	}
	return handler[*corev1.Pod]{
		added: func(now *corev1.Pod, _ bool) { selected(now) },
		updated: func(before, now *corev1.Pod) {
			if podChanged(before, now) {
				selected(before, now)
			}
		},
		deleted: func(*corev1.Pod) { c.facts.containers.refresh() },
	}
}

// podInterfaces is the interval of checks of the interfaces in pods, for owners that
// discover them. Netlink messages about other network namespaces require CAP_NET_BROADCAST,
// which the agent doesn't have. It is also the interval of checks whether the containers of
// deleted pods, and announced ones, have ended.
const podInterfaces = 10 * time.Second

// lookIntoPods has the interfaces in pods and the containers of deleted pods read periodically, until ctx ends.
func (c *Controller) lookIntoPods(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if c.facts.outlived() || c.facts.announced.overdue() {
			c.facts.containers.refresh()
		}
		c.facts.podInterfaces.refresh()
	}, podInterfaces)
}

// readContainers reads the containers after an event. If it fails, all owners that select containers say so.
func (c *Controller) readContainers(ctx context.Context, at moment) {
	selects := func(owner program.Owner) bool { return owner.Needs().Containers }
	if !c.anyOwner(ctx, selects) {
		return
	}
	if _, err := c.facts.running(ctx, &since{containers: at}, false); err != nil {
		c.enqueue(ctx, selects, since{containers: at})
	}
}

// readPodInterfaces reads the interfaces in pods. Owners that fail to read them retry by themselves.
func (c *Controller) readPodInterfaces(ctx context.Context, at moment) {
	if !c.anyOwner(ctx, func(owner program.Owner) bool { return owner.Needs().PodInterfaces }) {
		return
	}
	_, _ = c.facts.podInterfaces.get(ctx, at) // see above
}

// interfacesChanged reads the node's interfaces. If it fails, all owners that depend on them say so. An interface of the node
// can be one end of another one in a pod.
func (c *Controller) interfacesChanged(ctx context.Context) {
	c.facts.podInterfaces.refresh()
	needs := func(owner program.Owner) bool { return owner.Needs().Interfaces }
	if !c.anyOwner(ctx, needs) {
		return
	}
	at := c.facts.event()
	if _, err := c.facts.interfaces.get(ctx, at); err != nil {
		c.enqueue(ctx, needs, since{interfaces: at})
	}
}

// enqueueAffected enqueues the owners that a change on the node affects, with what they ask.
func (c *Controller) enqueueAffected(ctx context.Context, change program.Change, s since) {
	if !change.Empty() {
		c.enqueue(ctx, func(owner program.Owner) bool {
			return (s.podInterfaces == 0 || owner.Needs().PodInterfaces) && owner.Affected(change)
		}, s)
	}
}

// owners calls each with the owner of each object that is known, and with the version of it that this node runs if that isn't
// the newest one, until it returns false.
func (c *Controller) owners(ctx context.Context, each func(program.Owner) bool) {
	c.ownersOf(ctx, func(v1alpha1.UserObject) bool { return true }, each)
}

// ownersOf is owners for the objects of which something is true.
func (c *Controller) ownersOf(ctx context.Context, is func(v1alpha1.UserObject) bool, each func(program.Owner) bool) {
	for _, kind := range v1alpha1.UserKinds {
		objects, err := c.Cluster.UserObjects(kind.Name)
		if kinds.Unread(err) {
			continue // its objects are enqueued when they are read
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list objects from the cache", "kind", kind.Name)
			continue
		}
		for _, o := range objects {
			if !is(o) {
				continue
			}
			owner := program.OwnerOf(kind.Name, o)
			if !each(owner) {
				return
			}
			if older, ok := c.reconciler.planner.older.Load(owner.Key); ok && !each(older.(program.Owner)) { //nolint:errcheck // see planner.older
				return
			}
		}
	}
}

// anyOwner reports whether there is an owner of which something is true.
func (c *Controller) anyOwner(ctx context.Context, is func(program.Owner) bool) (found bool) {
	c.owners(ctx, func(owner program.Owner) bool {
		found = is(owner)
		return !found
	})
	return found
}

// enqueue enqueues the owners that an event affects, with what they ask of the node's state.
func (c *Controller) enqueue(ctx context.Context, affected func(program.Owner) bool, s since) {
	c.owners(ctx, func(owner program.Owner) bool {
		if affected(owner) {
			c.queue.addSince(owner.Key, s)
		}
		return true
	})
}

// enqueueAll enqueues the owners of all objects.
func (c *Controller) enqueueAll(ctx context.Context) {
	c.enqueue(ctx, func(program.Owner) bool { return true }, sinceAll(c.facts.event()))
}

// onPolicy enqueues all owners if a policy or its material has changed.
func (c *Controller) onPolicy(ctx context.Context) toolscache.ResourceEventHandler {
	return onChange(func(before, now *v1alpha1.BytecodePolicy) bool {
		return before.UID != now.UID || gate.VersionOf(before) != gate.VersionOf(now)
	}, func(*v1alpha1.BytecodePolicy) { c.enqueueAll(ctx) })
}

// onRolloutPolicy enqueues all owners if the spec of a policy has changed.
func (c *Controller) onRolloutPolicy(ctx context.Context) toolscache.ResourceEventHandler {
	return onChange(func(before, now *v1alpha1.RolloutPolicy) bool {
		return !equality.Semantic.DeepEqual(before.Spec, now.Spec)
	}, func(*v1alpha1.RolloutPolicy) { c.enqueueAll(ctx) })
}
