// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
)

// rollout returns the state of an object's rollout, and when to decide about the next step, or 0. The state is nil if no
// RolloutPolicy matches.
func (r *Reconciler) rollout(ctx context.Context, ref Ref, o v1alpha1.UserObject, summary Summary, current *v1alpha1.BpfProgramStatusCommon) (*v1alpha1.RolloutStatus, time.Duration, error) {
	was := current.Rollout
	if summary.Undecodable != "" || summary.Deleting || summary.Generation != o.GetGeneration() {
		return was, 0, nil
	}
	matching, err := r.rollouts(ctx, ref.Kind, o)
	switch unread := (*kinds.UnreadError)(nil); {
	case errors.As(err, &unread) && unread.Err != nil: // the definition or the permission is missing
		again := unlistedRetry
		if was == nil {
			again = 0
		}
		return was, again, nil
	case err != nil:
		return was, 0, err
	case len(matching) == 0:
		return nil, 0, nil
	}
	in := r.input(o, summary, was, matching)
	// The agents hold a change that comes with the first policy. Failures can be about an earlier revision.
	if summary.Attached+summary.Idle == 0 {
		in.Ran = current.Revision
	}
	d := steps.Decide(was, in)
	n := r.note(o.GetUID())
	n.rollout = d.Memory
	r.setNote(o.GetUID(), n)
	switch {
	case d.Begins:
		return r.begin(ctx, ref, d.Status, in)
	case !in.Nodes.Listed:
		return d.Status, unlistedRetry, nil
	}
	return d.Status, d.Again, nil
}

// revision returns the newest revision of an object, which it records if the object doesn't have it in its status, and when
// to try again, or 0. It is nil until it can be recorded: an older one isn't what nodes run. What prevents that doesn't affect
// anything else.
func (r *Reconciler) revision(ctx context.Context, ref Ref, o v1alpha1.UserObject, summary Summary, was *v1alpha1.RecordedRevision, roll *v1alpha1.RolloutStatus) (*v1alpha1.RecordedRevision, time.Duration) {
	hash, paused := o.GetAnnotations()[rollout.Mark], r.recordPause(o.GetUID())
	switch {
	case roll != nil && roll.Revision != 0: // recorded when its rollout began
		return &v1alpha1.RecordedRevision{Number: roll.Revision, Hash: roll.Hash}, 0
	case roll != nil, hash == "", was != nil && was.Hash == hash,
		summary.Undecodable != "", summary.Deleting, summary.Generation != o.GetGeneration():
		return was, 0
	case paused > 0:
		return nil, paused
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	started := r.Clock.Now()
	newest, err := r.whole(ctx, ref)
	if err == nil && newest == nil { // it was deleted
		return was, 0
	}
	var recorded v1alpha1.RecordedRevision
	if err == nil {
		recorded, err = r.record(ctx, ref.Kind, newest, 0)
	}
	if err != nil {
		return nil, r.recordLater(ctx, o.GetUID(), started, err)
	}
	return &recorded, 0
}

const (
	// recordRetry is the delay before a revision that can't be recorded is tried again, for example because of a quota.
	recordRetry = time.Minute
	// slowRecord is how long a failure can take. After a slower one, such as that of an admission webhook that is silent, no
	// revision is recorded for recordRetry: the statuses and rollouts of all objects would wait for the attempts.
	slowRecord = time.Second
)

// recordPause returns how long no revision of an object is recorded yet.
func (r *Reconciler) recordPause(uid types.UID) time.Duration {
	n := r.note(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	return max(r.recordAt.Sub(now), n.recordAt.Sub(now), 0)
}

// record records the newest revision of an object, besides which revision keep stays.
func (r *Reconciler) record(ctx context.Context, kind string, o v1alpha1.UserObject, keep int64) (v1alpha1.RecordedRevision, error) {
	revision, err := rollout.RevisionOf(o)
	if err != nil {
		return v1alpha1.RecordedRevision{}, err
	}
	return r.Revisions.Record(ctx, kind, o, revision, keep)
}

// recordLater returns when to try again to record the revision of an object, after an attempt that failed. Until then, no event
// leads to an attempt.
func (r *Reconciler) recordLater(ctx context.Context, uid types.UID, started time.Time, err error) (again time.Duration) {
	slow := r.Clock.Since(started) > slowRecord
	if again = unlistedRetry; slow || refuses(err) {
		again = recordRetry
	}
	ctrl.LoggerFrom(ctx).Error(err, "Failed to record the object's revision; retrying", "delay", again.String())
	n := r.note(uid)
	n.recordAt = started.Add(again)
	r.setNote(uid, n)
	if slow {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.recordAt = n.recordAt
	}
	return again
}

// sooner returns the shorter one of two delays, of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// begin begins the rollout of another revision. If it can't begin, again is when to try again, or 0 if that takes an event.
func (r *Reconciler) begin(ctx context.Context, ref Ref, was *v1alpha1.RolloutStatus, in steps.Input) (next *v1alpha1.RolloutStatus, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	started := r.Clock.Now()
	o, err := r.whole(ctx, ref)
	if o == nil || err != nil {
		return was, 0, err
	}
	if again = r.recordPause(o.GetUID()); again > 0 {
		return was, again, nil
	}
	number, previous := steps.Before(was)
	if number != 0 && previous == nil {
		if previous, err = r.Revisions.Revision(ctx, o, number); err != nil {
			return r.unrecorded(ctx, o.GetUID(), was, in, started, err)
		}
		// Others than the operator can write ControllerRevisions. The status says which revision the nodes ran.
		if previous == nil || hashOf(previous) != was.Hash {
			return steps.Contest(was, in.Policies[0].Name, problem.Notef(problem.RevisionMissing, "the ControllerRevision of revision %d doesn't exist, so no node changes until you delete the RolloutPolicy", number)), 0, nil
		}
	}
	if size := storedSize(o, previous); size > maxStored {
		return steps.Contest(was, in.Policies[0].Name, problem.Notef(problem.RevisionTooLarge, "the object and its previous revision have %d bytes, and at most %d can be stored, "+
			"so no node changes until you make the object smaller", size, maxStored)), 0, nil
	}
	recorded, err := r.record(ctx, ref.Kind, o, number)
	if err != nil {
		return r.unrecorded(ctx, o.GetUID(), was, in, started, err)
	}
	return steps.Start(was, recorded, previous, previous != nil && hashOf(previous) == recorded.Hash, in), 0, nil
}

// unrecorded returns the state of an object whose newest revision can't be recorded, and when to try again.
func (r *Reconciler) unrecorded(
	ctx context.Context, uid types.UID, was *v1alpha1.RolloutStatus, in steps.Input, started time.Time, err error,
) (*v1alpha1.RolloutStatus, time.Duration, error) {
	again := r.recordLater(ctx, uid, started, err)
	if refuses(err) {
		was = steps.Contest(was, in.Policies[0].Name, problem.Notef(problem.RevisionRefused, "the revision can't be recorded, so no node changes until it can be: %v", err))
	}
	return was, again, nil
}

// refuses reports whether an error of the API server is about the request, or the error of a webhook, rather than about the state
// of the API server.
func refuses(err error) bool {
	if errors.Is(err, steps.ErrTooMany) {
		return true
	}
	switch apierrors.ReasonForError(err) { //nolint:exhaustive // the others are about the request
	case metav1.StatusReasonUnknown, metav1.StatusReasonConflict, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable:
		return false
	}
	return true
}

// whole reads an object, which isn't complete in the cache. It returns nil if the object doesn't exist. The operator has no
// right to get objects, because it doesn't need it otherwise.
func (r *Reconciler) whole(ctx context.Context, ref Ref) (v1alpha1.UserObject, error) {
	of, err := r.Client.Scheme().New(v1alpha1.SchemeGroupVersion.WithKind(ref.Kind + "List"))
	list, ok := of.(client.ObjectList)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s has no list of objects: %w", ref.Kind, err)
	}
	if err := r.Live.List(ctx, list, client.InNamespace(ref.Namespace), client.MatchingFields{metav1.ObjectNameField: ref.Name}); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.NamespacedName, err)
	}
	var found v1alpha1.UserObject
	err = meta.EachListItem(list, func(item runtime.Object) error {
		found, ok = item.(v1alpha1.UserObject)
		if !ok {
			return fmt.Errorf("a list has an item of %T", item)
		}
		return nil
	})
	return found, err
}

// hashOf returns the hash of a stored revision, or "" if it can't be decoded.
func hashOf(stored *v1alpha1.RolloutRevision) string {
	parsed, err := rollout.Parse(stored.Object.Raw)
	if err != nil {
		return ""
	}
	return parsed.Hash()
}

// maxStored is less than the 1.5 MiB that etcd stores in one object, so that the rest of the status fits.
const maxStored = 1_300_000

// storedSize returns the size of an object with its previous revision in the status, in bytes.
func storedSize(o v1alpha1.UserObject, previous *v1alpha1.RolloutRevision) int {
	if previous == nil {
		return 0
	}
	whole, err := json.Marshal(o)
	if err != nil {
		return 0 // the API server has encoded it
	}
	return len(whole) + len(previous.Object.Raw)
}

// rollouts returns the RolloutPolicies that match an object.
func (r *Reconciler) rollouts(ctx context.Context, kind string, o v1alpha1.UserObject) ([]steps.Policy, error) {
	var all v1alpha1.RolloutPolicyList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	var matching []steps.Policy
	for i := range all.Items {
		if p := policy.CompileRollout(&all.Items[i]); p.Matches(kind, o) {
			matching = append(matching, steps.Policy{
				Name: p.Name, Created: all.Items[i].CreationTimestamp.Time, Spec: p.Spec, Undecodable: p.Undecodable,
			})
		}
	}
	return matching, nil
}

// input returns what decisions about an object depend on.
func (r *Reconciler) input(o v1alpha1.UserObject, summary Summary, was *v1alpha1.RolloutStatus, matching []steps.Policy) steps.Input {
	annotations := o.GetAnnotations()
	in := steps.Input{
		Policies: matching, Hash: annotations[rollout.Mark], Now: r.Clock.Now(), Memory: r.note(o.GetUID()).rollout,
		Paused: annotations[v1alpha1.AnnotationRolloutPaused] == "true", Resumed: annotations[v1alpha1.AnnotationRolloutResumed],
	}
	counts := o.GetStatus().Nodes
	in.Adopted = steps.Past{
		Observed: counts != nil && counts.Attached+counts.Idle+counts.Failed > 0, Reporting: summary.Reporting,
		Created: o.GetCreationTimestamp().Time, Policy: matching[0].Created,
	}.Adopted()
	canaries := rollout.Canaries(matching[0].Spec.Canaries)
	in.Nodes = steps.Nodes{
		// The controller starts when nodes and agents are listed, and Reconcile waits for reports. Without BpfNodes, a node with
		// a conflict would look healthy.
		Listed: r.health.Listed(),
		// Otherwise, the numbers are about an earlier step, and there is another event.
		Current:  equality.Semantic.DeepEqual(was, summary.Rollout),
		Matching: summary.Matching, Selected: summary.Selected,
		Healthy: summary.Changing.Healthy, Waiting: summary.Changing.Waiting, Failed: summary.Changing.Failed, Names: summary.Changing.Names,
		Positions: func() []int64 { return r.index.Positions(o.GetUID(), canaries) },
	}
	return in
}

// policyEvents enqueues the objects of all kinds if a RolloutPolicy has changed.
func (r *Reconciler) policyEvents() handler.TypedEventHandler[client.Object, Ref] {
	all := func(_ *v1alpha1.RolloutPolicy, q queue) { enqueue(q, r.index.Known()) }
	return handle(all, all)
}

// Known returns all user objects.
func (x *Index) Known() []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	var refs []Ref
	for _, o := range x.objects {
		refs = append(refs, o.ref)
	}
	return refs
}

// advanced reports whether a rollout got to another state or step, which is written immediately.
func advanced(before, after *v1alpha1.RolloutStatus) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.State != after.State || before.Position() != after.Position() || before.Hash != after.Hash
}

// announceRollout emits the Event about another state or step of a rollout.
func (r *Reconciler) announceRollout(object v1alpha1.UserObject, before, after *v1alpha1.RolloutStatus) {
	if after == nil || before == nil && after.State == v1alpha1.RolloutComplete || !advanced(before, after) {
		return
	}
	switch after.State {
	case v1alpha1.RolloutProgressing:
		event.Emit(r.Recorder, object, corev1.EventTypeNormal, "RolloutProgressing", "Rollout", "Rolling out "+after.Message)
	case v1alpha1.RolloutPaused:
		event.Emit(r.Recorder, object, corev1.EventTypeNormal, "RolloutPaused", "Rollout", "Paused: "+after.Message)
	case v1alpha1.RolloutComplete:
		event.Emit(r.Recorder, object, corev1.EventTypeNormal, "RolloutComplete", "Rollout", fmt.Sprintf("Rolled out revision %d to all nodes", after.Revision))
	case v1alpha1.RolloutHalted:
		event.Emit(r.Recorder, object, corev1.EventTypeWarning, "RolloutHalted", "Rollout", "Halted: "+after.Message)
	case v1alpha1.RolloutUndone:
		event.Emit(r.Recorder, object, corev1.EventTypeWarning, "RolloutUndone", "Rollout", "Undone: "+after.Message)
	case v1alpha1.RolloutContested:
		event.Emit(r.Recorder, object, corev1.EventTypeWarning, "RolloutContested", "Rollout", "Not rolled out: "+after.Message)
	}
}

// Positions returns the sorted positions of the nodes that an object selects, in its rollouts.
func (x *Index) Positions(uid types.UID, canaries labels.Selector) []int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []int64
	if o := x.objects[uid]; o != nil {
		for _, r := range o.nodes {
			if r.selected {
				all = append(all, rollout.Position(uid, r.node.name, r.node.labels, canaries))
			}
		}
	}
	slices.Sort(all)
	return all
}
