// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package hints publishes what each agent would otherwise have to watch: which kinds
// have objects, and on which nodes another client changed or deleted reports. See
// internal/hints.
package hints

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/pace"
)

const (
	fieldManager = "bpfman-operator"
	passTimeout  = 30 * time.Second

	// unlistedRetry is the interval between checks for kinds that haven't been listed yet.
	unlistedRetry = time.Second
	// unusedAfter is how long a kind is published after its last object was deleted.
	// This avoids notifying agents of kinds whose objects are often created and deleted.
	unusedAfter = time.Hour
	// relistFor is how long a node is published. It is longer than an agent needs to
	// notice.
	relistFor = 10 * time.Minute
	// writePace is the minimum interval between writes in a small cluster, unless a new
	// kind is published.
	writePace = time.Second
)

// Reconciler keeps the ConfigMap up to date. It is the only writer.
type Reconciler struct {
	Client client.Client
	// Namespace is the namespace where bpfman runs.
	Namespace string
	Clock     clock.PassiveClock

	// own is a cache that contains only the ConfigMap.
	own   client.Reader
	asked chan event.GenericEvent

	mu sync.Mutex
	// relist contains the nodes to publish, and since when.
	relist map[string]time.Time

	// Reconciliations don't run concurrently.
	wroteAt time.Time
	// gone contains the published kinds without objects, and since when.
	gone map[string]time.Time
}

// SetupWithManager watches the creation and deletion of user objects, and the ConfigMap.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{r.Namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, hints.ConfigMapName),
		}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("create a cache of ConfigMap %s: %w", hints.ConfigMapName, err)
	}
	if err := mgr.Add(own); err != nil {
		return fmt.Errorf("run a cache of ConfigMap %s: %w", hints.ConfigMapName, err)
	}
	r.own, r.gone = own, map[string]time.Time{}
	r.mu.Lock()
	r.asked = make(chan event.GenericEvent, 1)
	r.mu.Unlock()
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return r.request() })
	b := ctrl.NewControllerManagedBy(mgr).Named("hints").
		Watches(&corev1.ConfigMap{}, one). // the configuration, which owns the hints
		WatchesRawSource(source.Kind(own, client.Object(&corev1.ConfigMap{}), one)).
		WatchesRawSource(source.Channel(r.asked, one))
	for _, kind := range v1alpha1.UserKindsOf(mgr.GetScheme()) {
		b.WatchesRawSource(kindcache.Source(mgr.GetCache(), kind.New(), r.comeAndGo()))
	}
	b.WatchesRawSource(kindcache.Source(mgr.GetCache(), v1alpha1.RolloutPolicyKind.New(), r.comeAndGo()))
	return b.Complete(r)
}

func (r *Reconciler) request() []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: hints.ConfigMapName}}}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (r *Reconciler) comeAndGo() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.Add(r.request()[0]) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.Add(r.request()[0]) },
	}
}

// Relist asks the agent of a node to list its reports again. node is the value of the
// reports' node label. Relist doesn't block.
func (r *Reconciler) Relist(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relist == nil {
		r.relist = map[string]time.Time{}
	}
	// The ConfigMap has a limit for the number of nodes.
	if _, known := r.relist[node]; !known && len(r.relist) > hints.MaxNodes {
		node = hints.EveryNode
	}
	r.relist[node] = r.Clock.Now()
	select {
	case r.asked <- event.GenericEvent{Object: &corev1.ConfigMap{}}:
	default: // a request is pending, or the controller hasn't started, and reads relist when it does
	}
}

// Reconcile updates the ConfigMap.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	config := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: deploy.ConfigMapName}, config)
	if apierrors.IsNotFound(err) || err == nil && !config.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // nothing is deployed, and the garbage collector deletes the hints
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("get ConfigMap %s: %w", deploy.ConfigMapName, err)
	}
	current := &corev1.ConfigMap{}
	if err := r.own.Get(ctx, r.request()[0].NamespacedName, current); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get ConfigMap %s: %w", hints.ConfigMapName, err)
	}
	published := hints.Parse(current.Data)
	used, err := r.used(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	listed := len(used) == len(v1alpha1.UserKinds)+1
	nodes, now := r.nodes(published.Relist)
	want := hints.Hints{Kinds: named(used, published.Kinds, r.gone, now), Relist: nodes}
	owned := metav1.IsControlledBy(current, config)
	again := reconcile.Result{RequeueAfter: next(r.gone, want.Relist, now)}
	if !listed {
		again.RequeueAfter = unlistedRetry
	}
	if data := want.Data(); owned && data["kinds"] == current.Data["kinds"] && data["relist"] == current.Data["relist"] {
		return again, nil
	}
	if wait := r.wroteAt.Add(r.pace(ctx)).Sub(now); wait > 0 && owned && !adds(want.Kinds, published.Kinds) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.write(ctx, config, want); err != nil {
		return reconcile.Result{}, err
	}
	r.wroteAt = now
	return again, nil
}

// used returns whether a kind has objects, for each kind that could be read.
func (r *Reconciler) used(ctx context.Context) (map[string]bool, error) {
	used, lists := map[string]bool{}, map[string]runtime.Object{v1alpha1.RolloutPolicyKind.Name: v1alpha1.RolloutPolicyKind.NewList()}
	for _, kind := range v1alpha1.UserKindsOf(r.Client.Scheme()) {
		lists[kind.Name] = kind.NewList()
	}
	for kind, empty := range lists {
		list, ok := empty.(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("%T is not a list of objects", list)
		}
		err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.Limit(1))
		if kinds.Unread(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
		used[kind] = meta.LenList(list) > 0
	}
	return used, nil
}

// pace returns the minimum interval between writes.
func (r *Reconciler) pace(ctx context.Context) time.Duration {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return writePace
	}
	return pace.Between(writePace, len(nodes.Items))
}

// nodes returns the nodes to publish: those that are published, possibly by another
// replica, and new ones, without those that have expired. It also returns the current time.
func (r *Reconciler) nodes(published map[string]time.Time) (map[string]time.Time, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now() // while Relist can't add a later time
	old := func(_ string, at time.Time) bool { return now.Sub(at) >= relistFor || at.After(now) }
	maps.DeleteFunc(r.relist, old)
	nodes := map[string]time.Time{}
	maps.Copy(nodes, published)
	maps.DeleteFunc(nodes, old)
	for node, at := range r.relist {
		if at.After(nodes[node]) {
			nodes[node] = at
		}
	}
	return nodes, now
}

func (r *Reconciler) write(ctx context.Context, config *corev1.ConfigMap, want hints.Hints) error {
	owner := metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("ConfigMap").WithName(config.Name).WithUID(config.UID).WithController(true)
	object := corev1ac.ConfigMap(hints.ConfigMapName, r.Namespace).
		WithLabels(map[string]string{"app.kubernetes.io/managed-by": fieldManager, "app.kubernetes.io/part-of": "bpfman"}).
		WithOwnerReferences(owner).WithData(want.Data())
	if err := r.Client.Apply(ctx, object, client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ConfigMap %s: %w", hints.ConfigMapName, err)
	}
	return nil
}
