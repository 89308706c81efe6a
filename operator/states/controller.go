// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/liststream"
	"github.com/bpfman/bpfman-operator/operator/contest"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/reports"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	fieldManager = "bpfman-operator"

	// pace is the delay of a State after a change. Changes in this time are written together, so most applications cost
	// one write of a State when they are loaded.
	pace = 2 * time.Second

	// perSecond is the maximum number of States that are written or deleted in a second, and atOnce that of the first ones.
	// Nothing depends on States, so they take as little of the API server's time as if one object were sent to agents.
	perSecond = 50
	atOnce    = 100

	// unlistedRetry is the delay before a State is reconciled again if something hasn't been listed yet.
	unlistedRetry = time.Second
	// rollPoll is the interval between checks whether upstream's agent still runs on a node. Each of upstream's States costs a
	// list of the node's pods, and there is no hurry.
	rollPoll = 30 * time.Second

	passTimeout = time.Minute
)

// Reconciler writes the States of one kind, and deletes those of nodes and applications that have no reports. Without the
// kind's definition, it does nothing.
type Reconciler struct {
	Kind    v1alpha1.StateKind
	Client  client.Client
	Reports *reports.Store
	Clock   clock.PassiveClock
	// Definitions says whether the kind's definition is installed.
	Definitions *Definitions
	// Upstream knows on which nodes upstream's agent still runs, and Announcer tells administrators what it left.
	Upstream interface {
		AgentRuns(ctx context.Context, node string) (bool, error)
	}
	Announcer *takeover.Announcer
	// Contests are by State.
	Contests *contest.Ledger[types.UID]
	// Known records why the kind can't be read.
	Known *kinds.Kinds

	records *records
	limiter flowcontrol.RateLimiter
}

type queue = workqueue.TypedRateLimitingInterface[Key]

// SetupWithManager watches reports, applications, and States. Only the leader lists States, and only if their kind is
// served.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	api, err := kinds.NewClient(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("read %ss: %w", r.Kind.Name, err)
	}
	from := liststream.New(api, r.Kind.Resource(), runtime.NewParameterCodec(mgr.GetScheme()), decode)
	r.limiter = flowcontrol.NewTokenBucketRateLimiter(perSecond, atOnce)
	r.records = &records{changed: func(Key) {}}
	r.records.clear()
	started := source.TypedFunc[Key](func(ctx context.Context, q queue) error {
		r.records.changed = func(key Key) { q.AddAfter(key, pace) }
		go r.run(ctx, q, from)
		return nil
	})
	if r.Definitions.has(r.Kind.Name) {
		r.Reports.KeepDetails() // before they are listed
	}
	return builder.TypedControllerManagedBy[Key](mgr).Named("states-" + strings.ToLower(r.Kind.Name)).
		WatchesRawSource(reports.Source(r.Reports, r.onReport)).
		WatchesRawSource(kindcache.Source(mgr.GetCache(), r.application(), r.onApplication())).
		WatchesRawSource(started).
		Complete(r)
}

// application returns a new object of the kind of applications.
func (r *Reconciler) application() v1alpha1.UserObject {
	if r.Kind.Namespaced {
		return &namespaced.BpfApplication{}
	}
	return &v1alpha1.ClusterBpfApplication{}
}

// run lists and watches the States while their kind is served.
func (r *Reconciler) run(ctx context.Context, q queue, from *toolscache.ListWatch) {
	gvk := r.Kind.GroupVersionKind()
	for r.Definitions.await(ctx, r.Kind.Name, true) {
		ctrl.Log.Info("Writing States, because their kind is defined", "kind", r.Kind.Name)
		r.Reports.KeepDetails()
		r.Known.Optional(gvk)
		r.Known.SetListed(gvk, r.records.hasListed)
		served, stop := context.WithCancel(ctx)
		var reflecting sync.WaitGroup
		reflecting.Go(func() {
			toolscache.NewReflectorWithOptions(r.Known.Watch(gvk, from), nil, r.records, toolscache.ReflectorOptions{
				Name: r.Kind.Resource(), TypeDescription: r.Kind.Name,
			}).RunWithContext(served)
		})
		r.Reports.Each(r.Kind.Namespaced, func(report *reports.Report) { r.changed(report, q) })
		r.Definitions.await(ctx, r.Kind.Name, false)
		stop()
		reflecting.Wait()
		r.records.clear()
		r.Known.Forget(gvk)
	}
}

// changed queues the State that a report is part of, if there are States.
func (r *Reconciler) changed(report *reports.Report, q queue) {
	owner := report.Owner.Value()
	if owner.Kind != r.Kind.Application || owner.UID == "" || !r.Definitions.has(r.Kind.Name) {
		return
	}
	q.AddAfter(Key{types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, report.Node.Value().Label}, pace)
}

func (r *Reconciler) onReport(c reports.Change, q queue) {
	for _, report := range []*reports.Report{c.Before, c.After} {
		if report != nil {
			r.changed(report, q)
		}
	}
}

// onApplication queues the States of an application whose spec changes. Its status changes with each report.
func (r *Reconciler) onApplication() handler.TypedEventHandler[client.Object, Key] {
	all := func(o client.Object, q queue) {
		r.Reports.Each(r.Kind.Namespaced, func(report *reports.Report) {
			if report.Owner.Value().UID == o.GetUID() {
				r.changed(report, q)
			}
		})
	}
	return handler.TypedFuncs[client.Object, Key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { all(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				all(e.ObjectNew, q)
			}
		},
	}
}

// Reconcile writes or deletes the State of one application on one node.
func (r *Reconciler) Reconcile(ctx context.Context, key Key) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if !r.Definitions.has(r.Kind.Name) {
		return reconcile.Result{}, nil
	}
	existing, listed := r.records.of(key)
	if !listed || !r.Reports.Listed(r.Kind.Namespaced) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	}
	want, err := r.wanted(ctx, key)
	switch {
	case kinds.Unread(err), errors.Is(err, errIncomplete):
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	case errors.Is(err, errUndecodable):
		return reconcile.Result{}, nil // its States stay as they are, as its programs do
	case err != nil:
		return reconcile.Result{}, err
	}
	var current *record
	var soon time.Duration
	var errs []error
	for _, was := range existing {
		if want != nil && was.name == want.name {
			current = was
			continue
		}
		wait, err := r.remove(ctx, was)
		soon = max(soon, wait)
		errs = append(errs, err)
	}
	if want != nil {
		wait, err := r.write(ctx, key, want, current)
		soon = max(soon, wait)
		errs = append(errs, err)
	}
	return reconcile.Result{RequeueAfter: soon}, errors.Join(errs...)
}

var (
	errUndecodable = errors.New("the application can't be decoded")
	errIncomplete  = errors.New("the details of reports haven't been read yet")
)

// wanted returns the State for a key, or nil if there is to be none: the node reports nothing, or the application
// doesn't exist anymore.
func (r *Reconciler) wanted(ctx context.Context, key Key) (*wanted, error) {
	o := r.application()
	if err := r.Client.Get(ctx, key.NamespacedName, o); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", r.Kind.Application, key.NamespacedName, err)
	}
	if kinds.Undecodable(o) != "" {
		return nil, errUndecodable
	}
	all, _ := r.Reports.Of(key.Node) // the kind of these reports is listed, and others don't matter
	node := key.Node
	of := slices.DeleteFunc(all, func(report *reports.Report) bool {
		return report.Owner.Value().UID != o.GetUID() || report.Owner.Value().Kind != r.Kind.Application
	})
	for _, report := range of {
		if name := report.Node.Value().Name; name != "" {
			node = name
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	if !complete(of) {
		return nil, errIncomplete
	}
	application := &Application{Name: o.GetName(), UID: o.GetUID(), Deleting: !o.GetDeletionTimestamp().IsZero(), Programs: programsOf(o)}
	return &wanted{
		name: nameOf(r.Kind.Name, application, key.Node), owner: application.UID, labels: labelsOf(application, key.Node),
		status: statusOf(application, node, of),
	}, nil
}

// write writes a State, unless the record of it, which can be nil, says that it is there. If another client reverts it again
// and again, or its definition drops fields, write returns after which time to try again.
func (r *Reconciler) write(ctx context.Context, key Key, want *wanted, was *record) (time.Duration, error) {
	sum := want.sum()
	if was != nil && (was.deleting || was.sum == sum) {
		return 0, nil
	}
	again := was != nil && r.records.wrote(was.uid, sum)
	if again {
		if wait := r.Contests.Wait(was.uid); wait > 0 {
			return wait, nil
		}
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return 0, fmt.Errorf("wait to write %s %s: %w", r.Kind.Name, want.name, err)
	}
	uid, err := r.send(ctx, key, want, was)
	if err != nil {
		return 0, err
	}
	r.records.written(uid, sum)
	if again && r.Contests.Repeated(was.uid) {
		r.Announcer.AnotherOperator(ctx, fmt.Sprintf("%s %s doesn't stay as this operator writes it", r.Kind.Name, want.name))
	}
	return 0, nil
}

// send writes a State over that of a record, which can be nil, and returns its UID.
func (r *Reconciler) send(ctx context.Context, key Key, want *wanted, was *record) (types.UID, error) {
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: want.name, Labels: want.labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: r.Kind.Application, Name: key.Name, UID: want.owner, Controller: new(true),
		}},
	}}
	var uid types.UID
	if was != nil {
		uid = was.uid
	} else {
		created := r.Kind.New()
		created.SetNamespace(written.Namespace)
		created.SetName(written.Name)
		created.SetLabels(written.Labels)
		created.SetOwnerReferences(written.OwnerReferences)
		if err := r.Client.Create(ctx, created, client.FieldOwner(fieldManager)); err != nil {
			return "", fmt.Errorf("create %s %s: %w", r.Kind.Name, want.name, err)
		}
		uid = created.GetUID()
	}
	if was != nil && was.metadata != want.metadata().sum() {
		if err := r.repairMetadata(ctx, written, uid); err != nil {
			return "", err
		}
	}
	// As the status of users' objects: with the UID, it is never another object of the same name, and nothing is left of
	// what other clients wrote.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/status", "value": want.after(was, metav1.NewTime(r.Clock.Now()))},
	})
	if err != nil {
		return "", fmt.Errorf("encode the status of %s %s: %w", r.Kind.Name, want.name, err)
	}
	written.SetGroupVersionKind(r.Kind.GroupVersionKind())
	if err := r.Client.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager)); err != nil {
		return "", fmt.Errorf("write the status of %s %s: %w", r.Kind.Name, want.name, err)
	}
	return uid, nil
}

// repairMetadata writes the labels and the owner of a State that another client has changed.
func (r *Reconciler) repairMetadata(ctx context.Context, want *metav1.PartialObjectMetadata, uid types.UID) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": want.Labels, "ownerReferences": want.OwnerReferences}})
	if err != nil {
		return fmt.Errorf("encode the metadata of %s %s: %w", r.Kind.Name, want.Name, err)
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}}
	target.SetGroupVersionKind(r.Kind.GroupVersionKind())
	if err := r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("repair the metadata of %s %s: %w", r.Kind.Name, want.Name, err)
	}
	return nil
}

// remove deletes a State that isn't wanted, or that upstream's agent wrote. While that runs on the node, it returns after
// which time to look again.
func (r *Reconciler) remove(ctx context.Context, was *record) (time.Duration, error) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: was.key.Namespace, Name: was.name, UID: was.uid, ResourceVersion: was.version, Finalizers: was.finalizers,
	}}
	object.SetGroupVersionKind(r.Kind.GroupVersionKind())
	upstreams := len(takeover.Finalizers(object)) > 0
	if was.deleting && !upstreams {
		return 0, nil
	}
	if upstreams {
		if runs, err := r.Upstream.AgentRuns(ctx, was.key.Node); err != nil {
			return 0, fmt.Errorf("look for upstream's agent: %w", err)
		} else if runs {
			return rollPoll, nil
		}
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return 0, fmt.Errorf("wait to delete %s %s: %w", r.Kind.Name, was.name, err)
	}
	if _, err := takeover.RemoveFinalizers(ctx, r.Client, object); err != nil {
		return 0, err
	}
	if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &was.uid}); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("delete %s %s: %w", r.Kind.Name, was.name, err)
	}
	if upstreams {
		r.Announcer.TakenOver(ctx, fmt.Sprintf("Deleted the %s %s of upstream's agent on node %s", r.Kind.Name, was.name, was.key.Node))
	}
	return 0, nil
}
