// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
)

// rollout returns the state of an object's rollout, and when to decide about the next step, or 0. The state is nil if no
// RolloutPolicy matches.
func (r *Reconciler) rollout(ctx context.Context, ref Ref, o v1alpha1.UserObject, summary Summary, was *v1alpha1.RolloutStatus) (*v1alpha1.RolloutStatus, time.Duration, error) {
	if summary.Undecodable != "" || summary.Deleting || summary.Generation != o.GetGeneration() {
		return was, 0, nil
	}
	matching, err := r.rollouts(ctx, ref.Kind, o)
	if kinds.Unread(err) {
		return was, unlistedRetry, nil
	}
	if err != nil {
		return was, 0, err
	}
	switch {
	case len(matching) == 0:
		return nil, 0, nil
	case !decided(matching) && hasFailed(o, was):
		return was, 0, nil // it has to stay so after the contest
	case !decided(matching):
		return contested(was, matching), 0, nil
	}
	p := matching[0]
	in := r.input(o, summary, p)
	if was == nil || was.Hash != o.GetAnnotations()[rollout.Mark] {
		next, err := r.begin(ctx, ref, summary, was, p.Name, in)
		return next, 0, err
	}
	if !equality.Semantic.DeepEqual(was, summary.Rollout) {
		return was, 0, nil // the sums are about an earlier step, and there is another event
	}
	if !r.health.Listed() {
		return was, unlistedRetry, nil // a node with a conflict would look healthy
	}
	current := was.DeepCopy()
	current.Policy = p.Name
	if current.State == v1alpha1.RolloutContested {
		current.State, current.Message = v1alpha1.RolloutProgressing, ""
		if current.Step == 0 { // it was complete
			return steps.Complete(p.Name, steps.Numbered{Number: was.Revision, Hash: was.Hash}), 0, nil
		}
	}
	next, again := steps.Next(current, in)
	return next, again, nil
}

// begin begins the rollout of another revision.
func (r *Reconciler) begin(ctx context.Context, ref Ref, summary Summary, was *v1alpha1.RolloutStatus, name string, in steps.Input) (*v1alpha1.RolloutStatus, error) {
	o, err := r.whole(ctx, ref)
	if o == nil || err != nil {
		return was, err
	}
	revision, err := rollout.RevisionOf(o)
	if err != nil {
		return was, err
	}
	keep, previous := int64(0), (*v1alpha1.RolloutRevision)(nil)
	first := was == nil || was.Revision == 0
	switch {
	case first:
	case was.Until == nil && was.Previous == nil: // all nodes have it
		if previous, err = r.Revisions.Revision(ctx, o, was.Revision); err != nil {
			return was, err
		}
		if previous == nil {
			return lost(was), nil
		}
		keep = was.Revision
	case was.Previous != nil:
		previous, keep = was.Previous, was.Previous.Revision
	}
	if size := storedSize(o, previous); size > maxStored {
		return oversized(was, size), nil
	}
	number, err := r.Revisions.Record(ctx, ref.Kind, o, revision, keep)
	if err != nil {
		return was, err
	}
	// An object that nodes run already was there before the policy. A revision that all nodes run is there too.
	back := previous != nil && same(previous, revision)
	if first && summary.Reporting > 0 || back {
		return steps.Complete(name, number), nil
	}
	return steps.Begin(name, number, previous, in), nil
}

// whole reads an object, which isn't complete in the cache. It returns nil if the object doesn't exist. The operator has no
// right to get objects, because it doesn't need it otherwise.
func (r *Reconciler) whole(ctx context.Context, ref Ref) (v1alpha1.UserObject, error) {
	list, ok := kindOf(ref.Kind).NewList().(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s has no list of objects", ref.Kind)
	}
	if err := r.Live.List(ctx, list, client.InNamespace(ref.Namespace), client.MatchingFields{metav1.ObjectNameField: ref.Name}); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.NamespacedName, err)
	}
	var found v1alpha1.UserObject
	err := meta.EachListItem(list, func(item runtime.Object) error {
		found, ok = item.(v1alpha1.UserObject)
		if !ok {
			return fmt.Errorf("a list has an item of %T", item)
		}
		return nil
	})
	return found, err
}

func same(stored *v1alpha1.RolloutRevision, revision rollout.Revision) bool {
	parsed, err := rollout.Parse(stored.Object.Raw)
	return err == nil && parsed.Hash() == revision.Hash()
}

// lost returns the state of an object whose last revision was deleted. Without it, nodes that aren't to change yet
// wouldn't know what to run, so all keep what they run.
func lost(was *v1alpha1.RolloutStatus) *v1alpha1.RolloutStatus {
	s := was.DeepCopy()
	s.State = v1alpha1.RolloutHalted
	s.Message = fmt.Sprintf("the ControllerRevision of revision %d doesn't exist, so no node changes until you delete the RolloutPolicy", was.Revision)
	return s
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

// oversized returns the state of an object that can't be stored with its previous revision. Without it, nodes that aren't
// to change yet wouldn't know what to run, so all keep what they run.
func oversized(was *v1alpha1.RolloutStatus, size int) *v1alpha1.RolloutStatus {
	s := was.DeepCopy()
	s.State = v1alpha1.RolloutHalted
	s.Message = fmt.Sprintf("the object and its previous revision have %d bytes, and at most %d can be stored, so no node changes until you make the object smaller", size, maxStored)
	return s
}

// hasFailed reports whether the rollout of an object's revision has failed, so that nothing changes until somebody edits
// the object, or resumes the rollout.
func hasFailed(o v1alpha1.UserObject, was *v1alpha1.RolloutStatus) bool {
	switch {
	case was == nil || was.Hash != o.GetAnnotations()[rollout.Mark]:
		return false
	case was.State == v1alpha1.RolloutHalted:
		return was.Position() != o.GetAnnotations()[v1alpha1.AnnotationRolloutResumed]
	}
	return was.State == v1alpha1.RolloutUndone
}

// decided reports whether the policies that match an object say how it is rolled out.
func decided(matching []*policy.Rollout) bool {
	return len(matching) == 1 && matching[0].Undecodable == ""
}

func contested(was *v1alpha1.RolloutStatus, matching []*policy.Rollout) *v1alpha1.RolloutStatus {
	s := &v1alpha1.RolloutStatus{}
	if was != nil {
		s = was.DeepCopy()
	}
	s.State, s.Policy = v1alpha1.RolloutContested, ""
	names := make([]string, len(matching))
	for i, p := range matching {
		names[i] = p.Name
		if p.Undecodable != "" {
			s.Message = "the RolloutPolicy " + p.Name + " can't be read, so no node changes until you correct or delete it: " + p.Undecodable
			return s
		}
	}
	slices.Sort(names)
	s.Message = "the RolloutPolicies " + strings.Join(names, ", ") + " match the object, so no node changes until only one does"
	return s
}

// rollouts returns the RolloutPolicies that match an object.
func (r *Reconciler) rollouts(ctx context.Context, kind string, o v1alpha1.UserObject) ([]*policy.Rollout, error) {
	var all v1alpha1.RolloutPolicyList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	var matching []*policy.Rollout
	for i := range all.Items {
		if p := policy.CompileRollout(&all.Items[i]); p.Matches(kind, o) {
			matching = append(matching, p)
		}
	}
	return matching, nil
}

func (r *Reconciler) input(o v1alpha1.UserObject, summary Summary, p *policy.Rollout) steps.Input {
	canaries := rollout.Canaries(p.Spec.Canaries)
	healthy, waiting := r.since(o, summary)
	return steps.Input{
		Policy: p.Spec, Now: r.Clock.Now(), HealthySince: healthy, WaitingSince: waiting,
		Paused: o.GetAnnotations()[v1alpha1.AnnotationRolloutPaused] == "true", Resumed: o.GetAnnotations()[v1alpha1.AnnotationRolloutResumed],
		Nodes: steps.Nodes{
			Matching: summary.Matching, Selected: summary.Selected, Waiting: summary.Changing.Waiting, Failed: summary.Changing.Failed,
			Names:     summary.Changing.Names,
			Positions: func() []int64 { return r.index.Positions(o.GetUID(), canaries) },
		},
	}
}

// since returns since when all nodes of the current step are healthy, and since when nodes of a step wait that were all
// healthy before, or zero, as far as this process knows.
func (r *Reconciler) since(o v1alpha1.UserObject, summary Summary) (healthy, waiting time.Time) {
	n := r.note(o.GetUID())
	current, step := "", ""
	if summary.Rollout != nil {
		current = summary.Rollout.Position()
	}
	if summary.Changing.Waiting == 0 {
		step, n.settledStep = current, current
	}
	if n.healthyStep != step || n.healthySince.IsZero() {
		n.healthyStep, n.healthySince = step, r.Clock.Now()
	}
	r.setNote(o.GetUID(), n)
	if step != current && n.settledStep == current {
		waiting = n.healthySince
	}
	return n.healthySince, waiting
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
	for _, o := range x.owners {
		if o.known {
			refs = append(refs, o.ref)
		}
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
	if o := x.owners[uid]; o != nil {
		for _, r := range o.nodes {
			if r.selected {
				all = append(all, rollout.Position(uid, r.node.name, r.node.labels, canaries))
			}
		}
	}
	slices.Sort(all)
	return all
}
