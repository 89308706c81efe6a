// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/bpfnodes"
	"github.com/bpfman/bpfman-operator/operator/contest"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/reports"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	fieldManager = "bpfman-operator"

	// writePace is the minimum interval between writes to one object, unless its condition's type changes.
	writePace = 200 * time.Millisecond

	// waitingDelay is the delay before the status of an object that waits for its nodes is written. Most objects
	// don't wait that long, so they cost one write instead of two, which also each agent receives.
	waitingDelay = 2 * time.Second

	// agentGrace is how long a node without an agent's pod still counts as running an agent, because a DaemonSet
	// deletes a pod before it creates the next.
	agentGrace = time.Minute

	// unlistedRetry is the delay before an object is reconciled again if its reports, RolloutPolicies, or BpfNodes
	// haven't been listed yet.
	unlistedRetry = time.Second

	// replacedWithin is the maximum time that an agent takes to create the replacement of a report that it has
	// deleted.
	replacedWithin = 2 * time.Second

	writeTimeout = 10 * time.Second
	workers      = 4
)

// Reconciler writes the status of user objects. It is the only writer.
type Reconciler struct {
	Client client.Client
	// Live reads without the cache, in which objects aren't complete.
	Live     client.Reader
	Reports  *reports.Store
	Recorder events.EventRecorder
	Clock    clock.WithDelayedExecution
	// Contests are by object.
	Contests  *contest.Ledger[types.UID]
	Announcer *takeover.Announcer
	// Agents is notified if another client has changed or deleted reports of a node.
	Agents interface{ Relist(node string) }
	// Revisions keeps the revisions of objects.
	Revisions *steps.History

	index *Index
	// health reports whether the index contains what the inspectors say.
	health interface{ Listed() bool }
	mu     sync.Mutex
	notes  map[types.UID]note
	// recordAt is when to try again to record revisions, of any object.
	recordAt time.Time
}

// note is what the reconciler remembers about an object between writes.
type note struct {
	waitingSince time.Time
	wroteAt      time.Time
	// status is the last written status, with resourceVersion. The cache can be older.
	status          v1alpha1.BpfProgramStatusCommon
	resourceVersion string
	// rollout is about the object's rollout.
	rollout steps.Memory
	// recordAt is when to try again to record the object's revision.
	recordAt time.Time
}

// SetupWithManager watches the user objects of all kinds, reports, nodes, and the agent's pods. The manager's
// cache contains no other pods: see CacheByObject.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.index, r.notes = NewIndex(), map[types.UID]note{}
	b := builder.TypedControllerManagedBy[Ref](mgr)
	for _, kind := range v1alpha1.UserKindsOf(mgr.GetScheme()) {
		b.WatchesRawSource(kindcache.Source(mgr.GetCache(), kind.New(), r.ownerEvents(kind.Name)))
	}
	b.WatchesRawSource(reports.Source(r.Reports, r.onReport))
	health := kindcache.Source(mgr.GetCache(), bpfnodes.Metadata(), r.healthEvents())
	r.health = health
	return b.Named("status").
		Watches(&corev1.Node{}, r.nodeEvents()).
		Watches(&corev1.Pod{}, r.podEvents()).
		WatchesRawSource(kindcache.Source(mgr.GetCache(), &v1alpha1.RolloutPolicy{}, r.policyEvents())).
		WatchesRawSource(health).
		WithOptions(controller.TypedOptions[Ref]{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile updates the status of one object.
func (r *Reconciler) Reconcile(ctx context.Context, ref Ref) (reconcile.Result, error) {
	object := namespaced.New(ref.Kind, ref.Namespace)
	if err := r.Client.Get(ctx, ref.NamespacedName, object); kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: writePace}, nil
	} else if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	listed := r.Reports.Listed(ref.Namespace != "") // before the sums, which then have all reports
	summary, known := r.index.Summary(object.GetUID())
	if !known {
		return reconcile.Result{}, nil
	}
	if summary.Undecodable == "" && !listed {
		// Without the reports, the status would say that all nodes are still missing.
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	}
	current := r.note(object.GetUID()).current(object)
	roll, decide, err := r.rollout(ctx, ref, object, summary, &current)
	if kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if roll != nil {
		summary.Rollout = roll
	} // Otherwise, the sums are about the rollout that ends, so they don't say that the object is ready.
	revision, record := r.revision(ctx, ref, object, summary, current.Revision, roll)
	decide = sooner(decide, record)
	last := r.note(object.GetUID())
	want := summary.status(&current)
	want.Rollout, want.Revision = roll, revision
	condition := v1alpha1.ProgramConditionTypeOf(want.Conditions[0].Type)
	if equality.Semantic.DeepEqual(want, &current) || equality.Semantic.DeepEqual(want, last.restored(current)) {
		last.waitingSince = time.Time{}
		r.setNote(object.GetUID(), last)
		return reconcile.Result{RequeueAfter: decide}, nil
	}

	// If another client has changed the status, write the last one again.
	again := last.resourceVersion != "" && sameApartFromTime(want, &last.status)
	if again {
		want = last.status.DeepCopy()
	}
	now := r.Clock.Now()
	if condition == v1alpha1.ProgramNotYetLoaded && last.waitingSince.IsZero() {
		last.waitingSince = now
		r.setNote(object.GetUID(), last)
	}
	wait := last.due(condition, !again && transitioned(current.Conditions, want.Conditions), summary.pace(current.ObservedGeneration)).Sub(now)
	switch {
	case again:
		wait = max(wait, r.Contests.Wait(object.GetUID()))
	case advanced(current.Rollout, roll):
		wait = 0
	}
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	soon, err := r.publish(ctx, ref, object, &current, want, again)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: cmp.Or(soon, decide)}, nil
}

// status returns the status of an object with the sums.
func (s Summary) status(current *v1alpha1.BpfProgramStatusCommon) *v1alpha1.BpfProgramStatusCommon {
	want := current.DeepCopy()
	want.ObservedGeneration = s.Generation
	want.Nodes = new(s.Counts())
	_, said := s.Condition()
	want.Problem = string(said.Reason)
	v1alpha1.SetConditions(&want.Conditions, s.Conditions()...)
	return want
}

// publish writes the status, and emits Events about what has changed. If the object has changed, or doesn't exist anymore, it
// returns after which time to look again.
func (r *Reconciler) publish(ctx context.Context, ref Ref, object v1alpha1.UserObject, current, want *v1alpha1.BpfProgramStatusCommon, again bool) (soon time.Duration, err error) {
	written, err := r.write(ctx, ref.Kind, object, want)
	if err != nil {
		return 0, err
	}
	if !written {
		soon = writePace
	}
	if written && !again {
		r.announce(object, current.Conditions, want.Conditions)
		r.announceRollout(object, current.Rollout, want.Rollout)
	}
	if again && r.Contests.Repeated(object.GetUID()) {
		r.contested(ctx, ref, object)
	}
	return soon, nil
}

// sameApartFromTime reports whether two statuses are the same, except for transition times.
func sameApartFromTime(a, b *v1alpha1.BpfProgramStatusCommon) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, conditions := range [][]metav1.Condition{a.Conditions, b.Conditions} {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// contested reports that another client writes the object's status.
func (r *Reconciler) contested(ctx context.Context, ref Ref, object v1alpha1.UserObject) {
	note := "Another client writes the status, which this operator manages"
	event.Emit(r.Recorder, object, corev1.EventTypeWarning, takeover.ReasonAnotherOperator, "Reconcile", note)
	r.Announcer.AnotherOperator(ctx, fmt.Sprintf("%s %s: %s", ref.Kind, ref.NamespacedName, note))
}

// due returns when a condition can be written: success and failure immediately, waiting after a delay, and the
// same type of condition at the object's pace.
func (n note) due(condition v1alpha1.ProgramConditionType, transition bool, objectPace time.Duration) time.Time {
	due := n.wroteAt.Add(objectPace)
	switch {
	case condition == v1alpha1.ProgramNotYetLoaded:
		if settled := n.waitingSince.Add(waitingDelay); settled.After(due) {
			return settled
		}
	case transition:
		return time.Time{}
	}
	return due
}

// current returns the object's status as last seen or written, depending on which is newer.
func (n note) current(object v1alpha1.UserObject) v1alpha1.BpfProgramStatusCommon {
	if n.version(object) != object.GetResourceVersion() {
		return n.status
	}
	return *object.GetStatus()
}

// restored returns a status with what was written, and the API server has dropped because the cluster's definitions are older.
func (n note) restored(current v1alpha1.BpfProgramStatusCommon) *v1alpha1.BpfProgramStatusCommon {
	restored := current.DeepCopy()
	restored.Problem = cmp.Or(restored.Problem, n.status.Problem)
	if is, was := restored.Rollout, n.status.Rollout; is != nil && was != nil {
		is.Problem = cmp.Or(is.Problem, was.Problem)
	}
	return restored
}

// version returns the version of the object that has the current status.
func (n note) version(object v1alpha1.UserObject) string {
	if n.resourceVersion != "" {
		if order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), n.resourceVersion); err == nil && order < 0 {
			return n.resourceVersion
		}
	}
	return object.GetResourceVersion()
}

// write replaces the status. It returns false if the object doesn't exist anymore, or if the decision about its rollout is about
// an earlier version of it.
func (r *Reconciler) write(ctx context.Context, kind string, object v1alpha1.UserObject, want *v1alpha1.BpfProgramStatusCommon) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// With the uid, the API server refuses to write to another object of the same name. The patch replaces the whole
	// status, including conditions of other writers, so upstream's is at index 0.
	uid := object.GetUID()
	changes := []map[string]any{
		{"op": "replace", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/status", "value": want},
	}
	if want.Rollout != nil || object.GetStatus().Rollout != nil {
		// For a moment, an operator that led before can still write. It must not take back what the new one has decided.
		changes = append(changes, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": r.note(uid).version(object)})
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return false, fmt.Errorf("encode status of %s: %w", object.GetName(), err)
	}
	// Only the metadata of the response is needed, and decoding the whole object can fail.
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	written.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// It was deleted, and possibly created again, or somebody else has written it. From now on, what is read counts.
		n := r.note(uid)
		n.resourceVersion = ""
		r.setNote(uid, n)
		return false, nil
	}
	if apierrors.IsInvalid(err) && len(want.Conditions) > 0 {
		// It was stored with another schema. The current schema rejects it, no matter what the status is.
		event.Emit(r.Recorder, object, corev1.EventTypeWarning, want.Conditions[0].Reason, "Reconcile",
			want.Conditions[0].Message+"; the API server rejects the status of this object: "+err.Error())
	}
	if err != nil {
		return false, fmt.Errorf("write status of %s: %w", object.GetName(), err)
	}
	n := r.note(uid)
	n.wroteAt, n.status, n.resourceVersion, n.waitingSince = r.Clock.Now(), *want, written.GetResourceVersion(), time.Time{}
	r.setNote(uid, n)
	return true, nil
}

// announce emits the Event about a transition. It emits none if the object is waiting.
func (r *Reconciler) announce(object v1alpha1.UserObject, before, after []metav1.Condition) {
	if !transitioned(before, after) {
		return
	}
	c, severity := after[0], corev1.EventTypeWarning
	switch v1alpha1.ProgramConditionTypeOf(c.Type) {
	case v1alpha1.ProgramNotYetLoaded:
		return
	case v1alpha1.ProgramReconcileSuccess:
		severity = corev1.EventTypeNormal
	case v1alpha1.ProgramReconcileError, v1alpha1.ProgramDeleteError:
	}
	event.Emit(r.Recorder, object, severity, c.Reason, "Reconcile", c.Message)
}

// transitioned reports whether the first conditions have different types, or are about different generations.
func transitioned(before, after []metav1.Condition) bool {
	return len(before) == 0 || before[0].Type != after[0].Type || before[0].ObservedGeneration != after[0].ObservedGeneration
}

func (r *Reconciler) note(uid types.UID) note {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[uid]
}

func (r *Reconciler) setNote(uid types.UID, n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index.knows(uid) { // it can have been deleted in the meantime
		r.notes[uid] = n
	}
}

func (r *Reconciler) forgetNote(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.notes, uid)
}
