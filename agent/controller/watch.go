// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/kinds"
)

type queue = workqueue.TypedRateLimitingInterface[program.Key]

// workers is how many owners are worked on at a time: enough that the daemon,
// which serves one call at a time, never waits for the API server.
const workers = 4

// Retries of a failed owner come after these times; whatever may have mended it
// is an event of its own and comes at once.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// findKinds is how often a kind that isn't used is looked at, on average.
const findKinds = 4 * time.Minute

// SetupWithManager starts the reconciler with a manager. OnConnect calls a
// function each time the daemon can be reached again, until its context ends.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, onConnect func(context.Context, func())) error {
	c, err := ctrl.NewTyped("programs", mgr, ctrl.TypedOptions[program.Key]{
		Reconciler:              r,
		MaxConcurrentReconciles: workers,
		// Tests run many agents in one process.
		SkipNameValidation: new(true),
		LogConstructor: func(key *program.Key) logr.Logger {
			if key == nil {
				return mgr.GetLogger()
			}
			return mgr.GetLogger().WithValues("owner", key.String())
		},
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[program.Key](firstRetry, lastRetry),
	})
	if err != nil {
		return fmt.Errorf("create controller: %w", err)
	}
	useless := make(chan error, 1)
	if err := mgr.Add(endsBy(useless)); err != nil {
		return fmt.Errorf("add the check for an incompatible daemon: %w", err)
	}
	background := r.watchOnDemand(mgr, c)
	sources := []source.TypedSource[program.Key]{
		source.TypedFunc[program.Key](func(ctx context.Context, q queue) error {
			r.queue = q
			for _, f := range background {
				go f(ctx)
			}
			go onConnect(ctx, func() { r.daemonReturned(ctx, q) })
			go func() { useless <- r.compare(ctx) }()
			go r.lookIntoPods(ctx, q)
			go r.retire(ctx, replacedWithin)
			go node.WatchInterfaces(ctx,
				func() { r.enqueue(ctx, q, func(n program.Needs) bool { return n.Interfaces }) },
				func(err error) {
					log.FromContext(ctx).Error(err, "Failed to watch network interfaces; changes may be noticed late")
				})
			return nil
		}),
		kinds.Source(source.TypedKind(mgr.GetCache(), client.Object(&corev1.Node{}), r.onNode())),
		kinds.Source(source.TypedKind(mgr.GetCache(), client.Object(v1alpha1.PolicyKind.New()), r.onPolicy())),
	}
	if r.Namespace != "" {
		r.Kinds.Optional(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		sources = append(sources, kinds.Source(source.TypedKind(mgr.GetCache(), client.Object(&corev1.ConfigMap{}), r.onHints())))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	return nil
}

// watchOnDemand sets up what is listed without a watch, and the kinds that are watched
// once they are used. It returns what has to run beside the controller for that.
func (r *Reconciler) watchOnDemand(mgr manager.Manager, c ctrl.TypedController[program.Key]) (background []func(context.Context)) {
	for _, kind := range v1alpha1.ProgramKinds {
		asked := make(chan time.Duration, 1)
		r.asked = append(r.asked, asked)
		r.Kinds.Listed(kind.GroupVersionKind(), func() bool { return r.reports.isListed(kind.Namespaced) })
		background = append(background, func(ctx context.Context) { r.keepReports(ctx, kind, asked) })
	}
	open := func(s source.TypedSource[program.Key]) func() {
		return func() {
			if err := c.Watch(s); err != nil { // the controller isn't running: the agent ends
				mgr.GetLogger().Error(err, "Failed to watch a kind")
			}
		}
	}
	for _, kind := range v1alpha1.UserKinds {
		r.Kinds.OnDemand(kind.GroupVersionKind(), open(kinds.SourceThen(
			source.TypedKind(mgr.GetCache(), client.Object(kind.New()), onUserObject(kind.Name)),
			func(q queue) { r.onListed(q, kind.Name) })))
		background = append(background, func(ctx context.Context) { r.Kinds.Find(ctx, kind, cmp.Or(r.FindKinds, findKinds)) })
	}
	r.Kinds.OnDemand(podKind, open(kinds.Source(source.TypedKind(mgr.GetCache(), client.Object(&corev1.Pod{}), r.onPod()))))
	r.Kinds.Optional(podKind)
	return background
}

// podKind is watched only while some owner selects containers, from the first on.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// endsBy ends the manager, and with it the agent, with an error that comes.
func endsBy(errs <-chan error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		select {
		case err := <-errs:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// onListed starts work for what the daemon holds of a kind that has just been
// listed: its owner may be gone, and no event tells of it.
func (r *Reconciler) onListed(q queue, kind string) {
	for _, key := range r.Inventory.Owners() {
		if key.Kind == kind {
			q.Add(key)
		}
	}
}

type handlers = handler.TypedFuncs[client.Object, program.Key]

// onUserObject starts work where a spec changed or deletion began.
func onUserObject(kind string) handlers {
	key := func(o client.Object) program.Key {
		return program.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	return handlers{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { q.Add(key(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			if changed(e.ObjectOld, e.ObjectNew) {
				q.Add(key(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { q.Add(key(e.Object)) },
	}
}

// changed tells whether a user object asks for something else than before.
func changed(before, now client.Object) bool {
	replace := func(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationReplacePinnedMaps] }
	another := before.GetUID() != now.GetUID()
	spec := before.GetGeneration() != now.GetGeneration()
	return another || spec || replace(before) != replace(now) || now.GetDeletionTimestamp() != nil
}

// onNode starts work where the own node's labels or addresses changed. While a node is
// gone, the operator deletes its reports.
func (r *Reconciler) onNode() handlers {
	all := func(ctx context.Context, q queue) { r.enqueue(ctx, q, func(program.Needs) bool { return true }) }
	return handlers{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q queue) {
			if !e.IsInInitialList {
				r.relist(0)
			}
			all(ctx, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			before, ok := e.ObjectOld.(*corev1.Node)
			now, ok2 := e.ObjectNew.(*corev1.Node)
			if !ok || !ok2 || !equality.Semantic.DeepEqual(before.Labels, now.Labels) || !equality.Semantic.DeepEqual(before.Status.Addresses, now.Status.Addresses) {
				all(ctx, q)
			}
		},
	}
}

// onPod starts work for owners that select containers, where a pod's labels, phase
// or containers changed.
func (r *Reconciler) onPod() handlers {
	changed := func(ctx context.Context, q queue) {
		r.enqueue(ctx, q, func(n program.Needs) bool { return n.Containers })
	}
	return handlers{
		CreateFunc: func(ctx context.Context, _ event.TypedCreateEvent[client.Object], q queue) { changed(ctx, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			before, ok := e.ObjectOld.(*corev1.Pod)
			now, ok2 := e.ObjectNew.(*corev1.Pod)
			if !ok || !ok2 || !maps.Equal(before.Labels, now.Labels) || before.Status.Phase != now.Status.Phase || !slices.Equal(running(before), running(now)) {
				changed(ctx, q)
			}
		},
		DeleteFunc: func(ctx context.Context, _ event.TypedDeleteEvent[client.Object], q queue) { changed(ctx, q) },
	}
}

// running lists a pod's running containers by id.
func running(pod *corev1.Pod) []string {
	var ids []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.State.Running != nil {
			ids = append(ids, s.ContainerID)
		}
	}
	return ids
}

// daemonReturned starts work for everything: the daemon may have lost programs,
// and what failed for want of it can be done.
func (r *Reconciler) daemonReturned(ctx context.Context, q queue) {
	r.Inventory.Doubt()
	for _, key := range r.Inventory.Owners() {
		q.Add(key)
	}
	r.enqueue(ctx, q, func(program.Needs) bool { return true })
	// Owners that are gone with all their objects are known to the daemon alone.
	if err := r.ensureInventory(ctx); err != nil {
		log.FromContext(ctx).Info("Failed to list the daemon's programs; retrying", "reason", err.Error())
	}
}

// podInterfaces is how often the interfaces inside pods are looked at where an
// owner discovers them: listening to the kernel's messages about other network
// namespaces takes a capability (CAP_NET_BROADCAST), which the agent hasn't.
const podInterfaces = 10 * time.Second

// lookIntoPods starts work for the owners that discover interfaces inside pods,
// until ctx ends.
func (r *Reconciler) lookIntoPods(ctx context.Context, q queue) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		r.enqueue(ctx, q, func(n program.Needs) bool { return n.PodInterfaces })
	}, podInterfaces)
}

// enqueue starts work for the owners that a change affects.
func (r *Reconciler) enqueue(ctx context.Context, q queue, affected func(program.Needs) bool) {
	for _, kind := range v1alpha1.UserKinds {
		list, ok := kind.NewList().(client.ObjectList)
		if !ok {
			continue
		}
		err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy)
		if kinds.Unread(err) {
			continue // its objects start work of their own when they are read
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "Failed to list objects from the cache", "kind", kind.Name)
			continue
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // its error is the function's
			if user, ok := o.(v1alpha1.UserObject); ok {
				if owner, err := program.OwnerOf(kind.Name, user); err == nil && affected(owner.Needs()) {
					q.Add(owner.Key)
				}
			}
			return nil
		})
	}
}

// enqueueSharers starts work for the owners that use maps of other programs.
func (r *Reconciler) enqueueSharers(q queue) {
	r.sharers.Range(func(key, _ any) bool {
		q.Add(key.(program.Key)) //nolint:errcheck,forcetypeassert // the only type put in
		return true
	})
}
