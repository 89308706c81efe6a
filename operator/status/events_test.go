// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/contest"
	"github.com/bpfman/bpfman-operator/operator/reports"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

func agentPod(uid types.UID, node string, phase corev1.PodPhase) client.Object {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func newReconciler(x *Index) (*Reconciler, *clocktesting.FakeClock, queue) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[Ref]())
	return &Reconciler{Clock: clock, index: x, notes: map[types.UID]note{}, health: asListed(true)}, clock, q
}

type asListed bool

func (l asListed) Listed() bool { return bool(l) }

// A pod is bound, evicted, and replaced. The last one isn't replaced within the grace period.
func TestAgentPodEvents(t *testing.T) {
	x := NewIndex()
	x.SetNode("a", nil, true)
	x.SetOwner(ref, uid, everywhere(1))
	r, clock, q := newReconciler(x)
	handler := r.podEvents()
	selected := func(want int) {
		t.Helper()
		if s, _ := x.Summary(uid); s.Selected != want {
			t.Errorf("%d nodes selected, want %d", s.Selected, want)
		}
	}

	handler.Create(t.Context(), event.CreateEvent{Object: agentPod("one", "", corev1.PodPending)}, q)
	selected(0)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: agentPod("one", "", corev1.PodPending), ObjectNew: agentPod("one", "a", corev1.PodPending)}, q)
	selected(1)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: agentPod("one", "a", corev1.PodRunning), ObjectNew: agentPod("one", "a", corev1.PodFailed)}, q)
	selected(1)
	handler.Create(t.Context(), event.CreateEvent{Object: agentPod("two", "a", corev1.PodPending)}, q)
	clock.Step(agentGrace)
	selected(1)
	handler.Delete(t.Context(), event.DeleteEvent{Object: agentPod("one", "a", corev1.PodFailed)}, q)
	selected(1)

	handler.Delete(t.Context(), event.DeleteEvent{Object: agentPod("two", "a", corev1.PodRunning)}, q)
	clock.Step(agentGrace - 1)
	selected(1)
	clock.Step(1)
	selected(0)
	if got, _ := q.Get(); got != ref {
		t.Errorf("%v is to be looked at, want %v", got, ref)
	}
}

// A node that is scaled down ends its pods, which are deleted some time after the node.
func TestNodeOfAnEndedAgentIsForgotten(t *testing.T) {
	x := cluster(t)
	r, clock, q := newReconciler(x)
	nodes, pods := r.nodeEvents(), r.podEvents()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	running, ended := agentPod("one", "a", corev1.PodRunning), agentPod("one", "a", corev1.PodFailed)
	nodes.Create(t.Context(), event.CreateEvent{Object: node}, q)
	pods.Create(t.Context(), event.CreateEvent{Object: running}, q)
	pods.Update(t.Context(), event.UpdateEvent{ObjectOld: running, ObjectNew: ended}, q)
	nodes.Delete(t.Context(), event.DeleteEvent{Object: node}, q)
	clock.Step(agentGrace)
	pods.Delete(t.Context(), event.DeleteEvent{Object: ended}, q)
	if len(x.nodes) > 0 {
		t.Errorf("%d nodes are known", len(x.nodes))
	}
}

// An object can be deleted while it is reconciled.
func TestNoteOfADeletedObjectIsForgotten(t *testing.T) {
	r, _, q := newReconciler(NewIndex())
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid}}
	handler := r.ownerEvents(ref.Kind)
	handler.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: object}, q)
	n := note{resourceVersion: "1"}
	r.setNote(uid, n)
	if r.note(uid).resourceVersion != n.resourceVersion {
		t.Error("the note of an object isn't kept")
	}
	handler.Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: object}, q)
	r.setNote(uid, n)
	if len(r.notes) > 0 {
		t.Errorf("%d notes are kept", len(r.notes))
	}
}

// If someone edits the owner or node of a report, the report counts there.
func TestReportChangesHands(t *testing.T) {
	x := cluster(t, "a", "b")
	r, _, q := newReconciler(x)
	other := Ref{Kind: ref.Kind, NamespacedName: types.NamespacedName{Name: "other"}}
	x.SetOwner(ref, uid, everywhere(1))
	x.SetOwner(other, "other", everywhere(1))
	first := program("a", "p", 1, v1alpha1.BpfProgCondLoaded, "")
	owned, moved := *first, *first
	owned.Owner = unique.Make(reports.Owner{Kind: other.Kind, Name: other.Name, UID: "other"})
	moved.Owner, moved.Node = owned.Owner, unique.Make(reports.Node{Label: "b"})
	check := func(when string, want map[types.UID]int) {
		t.Helper()
		for owner, want := range want {
			if s, _ := x.Summary(owner); s.Attached != want {
				t.Errorf("%s: %s is attached on %d nodes, want %d", when, owner, s.Attached, want)
			}
		}
	}
	r.onReport(reports.Change{After: first}, q)
	check("new", map[types.UID]int{uid: 1, "other": 0})
	r.onReport(reports.Change{Before: first, After: &owned}, q)
	check("of another owner", map[types.UID]int{uid: 0, "other": 1})
	r.onReport(reports.Change{Before: &owned, After: &moved}, q)
	check("on another node", map[types.UID]int{uid: 0, "other": 1})
	if s, _ := x.Summary("other"); len(s.WaitingFor) != 1 || s.WaitingFor[0].Node != "a" {
		t.Errorf("waiting for %+v", s.WaitingFor)
	}
	r.onReport(reports.Change{Before: &moved}, q)
	check("deleted", map[types.UID]int{uid: 0, "other": 0})
}

// A temporary state is written after a delay, a final state immediately, and the same type of condition at the
// pace.
func TestDue(t *testing.T) {
	at := time.Unix(100, 0)
	for _, c := range []struct {
		name       string
		note       note
		condition  v1alpha1.ProgramConditionType
		transition bool
		want       time.Time
	}{
		{"waits from now on", note{waitingSince: at}, v1alpha1.ProgramNotYetLoaded, true, at.Add(waitingDelay)},
		{"waits again just after a write", note{waitingSince: at, wroteAt: at.Add(waitingDelay)}, v1alpha1.ProgramNotYetLoaded, false, at.Add(waitingDelay + writePace)},
		{"success", note{waitingSince: at, wroteAt: at}, v1alpha1.ProgramReconcileSuccess, true, time.Time{}},
		{"another failure", note{wroteAt: at}, v1alpha1.ProgramReconcileError, false, at.Add(writePace)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.note.due(c.condition, c.transition, writePace); !got.Equal(c.want) {
				t.Errorf("due %v, want %v", got, c.want)
			}
		})
	}
}

// What changes with each node of a rollout is written at a pace that slows down with the number of agents, because
// all of them receive it. What changes when all nodes have reported isn't delayed.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name    string
		summary Summary
		want    time.Duration
	}{
		{"few nodes", Summary{Agents: 3, Waiting: 1, Generation: 1}, writePace},
		{"a roll-out on many", Summary{Agents: 1000, Waiting: 1, Generation: 1}, 20 * time.Second},
		{"an edit during a roll-out on many", Summary{Agents: 1000, Waiting: 1, Generation: 2}, writePace},
		{"all have reported", Summary{Agents: 1000, Failed: 1, Generation: 1}, writePace},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.summary.pace(1); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestNodeOfProgram(t *testing.T) {
	long := v1alpha1.LabelValue("ip-10-0-0-1.some-very-long-name.of-a-region.compute.internal.example.com")
	for _, c := range []struct{ label, node, want string }{
		{"node-a", "", "node-a"},
		{"node-a", "node-a", "node-a"},
		{long, "", ""},
		{long, "the-long-name", "the-long-name"},
		{"label", "name", "name"},
		{strings.Repeat("n", 50), "", strings.Repeat("n", 50)},
		{strings.Repeat("n", 51), "", ""}, // possibly a hash
	} {
		if got := nodeOf(&reports.Report{Node: unique.Make(reports.Node{Label: c.label, Name: c.node})}); got != c.want {
			t.Errorf("label %q, node %q: got %q, want %q", c.label, c.node, got, c.want)
		}
	}
}

// A status that another client writes again and again is announced on the object and on the ConfigMap.
func TestContestedStatus(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid}}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-config", UID: "config"}}
	r, clock, _ := newReconciler(NewIndex())
	recorder := events.NewFakeRecorder(100)
	r.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(object, config).WithStatusSubresource(object).Build()
	r.Recorder, r.Contests = recorder, &contest.Ledger[types.UID]{Clock: clock}
	r.Announcer = &takeover.Announcer{Client: r.Client, Recorder: recorder, ConfigMap: client.ObjectKeyFromObject(config)}
	want := &v1alpha1.BpfProgramStatusCommon{Conditions: Summary{}.Conditions()}
	announced := func(again bool, times int) int {
		for range times {
			if _, err := r.publish(t.Context(), ref, object, object.GetStatus(), want, again); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for len(recorder.Events) > 0 {
			if strings.Contains(<-recorder.Events, "Another client writes the status") {
				n++
			}
		}
		return n
	}
	if n := announced(false, 10); n > 0 {
		t.Errorf("%d Events about the operator's own changes", n)
	}
	if n := announced(true, 1); n > 0 {
		t.Errorf("%d Events about a repair", n)
	}
	if n := announced(true, 10); n < 2 {
		t.Errorf("%d Events about repeated writes", n)
	}
}

func TestReachable(t *testing.T) {
	for key, want := range map[string]bool{"": true, corev1.TaintNodeUnreachable: false, corev1.TaintNodeNotReady: true} {
		node := &corev1.Node{}
		if key != "" {
			node.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: key}}
		}
		if got := reachable(node); got != want {
			t.Errorf("a node with the taint %q is reachable: %v", key, got)
		}
	}
}

// Reports about the previous revision count during a rollout.
func TestOwnerOf(t *testing.T) {
	o := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", Generation: 3}}
	o.Spec.Programs = make([]v1alpha1.BpfApplicationProgram, 2)
	if got := ownerOf("BpfApplication", o, Owner{}); got.Generation != 3 || got.Programs != 2 || got.Before != 0 || got.Rollout != nil || got.Deleting {
		t.Errorf("%+v", got)
	}
	o.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 2}
	if got := ownerOf("BpfApplication", o, Owner{}); got.Before != 0 || got.Rollout == nil {
		t.Errorf("without a previous revision: %+v", got)
	}
	o.Status.Rollout.Previous = &v1alpha1.RolloutRevision{Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"generation":2},"spec":{"programs":[{"type":"XDP"}]}}`)}}
	o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if got := ownerOf("BpfApplication", o, Owner{}); got.Before != 2 || got.ProgramsBefore != 1 || !got.Deleting {
		t.Errorf("with a previous revision: %+v", got)
	}
	o.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}
	if got := ownerOf("BpfApplication", o, Owner{}); got.Invalid == "" || got.Selector != nil {
		t.Errorf("with an invalid selector: %+v", got)
	}
}

func TestTransitioned(t *testing.T) {
	of := func(first string, generation int64, others ...string) []metav1.Condition {
		all := []metav1.Condition{{Type: first, ObservedGeneration: generation}}
		for _, other := range others {
			all = append(all, metav1.Condition{Type: other})
		}
		return all
	}
	now := of("ReconcileError", 2, "Ready")
	for name, test := range map[string]struct {
		before []metav1.Condition
		want   bool
	}{
		"the first":          {nil, true},
		"the same":           {now, false},
		"another type":       {of("ReconcileSuccess", 2, "Ready"), true},
		"another generation": {of("ReconcileError", 1, "Ready"), true},
		"of another version": {of("ReconcileError", 2), false},
	} {
		if got := transitioned(test.before, now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// One Event says that a rollout is in another state or step.
func TestEventsOfRollouts(t *testing.T) {
	r, _, _ := newReconciler(NewIndex())
	recorder := events.NewFakeRecorder(10)
	r.Recorder = recorder
	status := func(state v1alpha1.RolloutState, step int32) *v1alpha1.RolloutStatus {
		return &v1alpha1.RolloutStatus{State: state, Revision: 2, Step: step, Message: "what happened"}
	}
	for name, test := range map[string]struct {
		before, after *v1alpha1.RolloutStatus
		want          string
	}{
		"no policy anymore": {status(v1alpha1.RolloutComplete, 0), nil, ""},
		"adopted":           {nil, status(v1alpha1.RolloutComplete, 0), ""},
		"begun":             {nil, status(v1alpha1.RolloutProgressing, 1), "Normal RolloutProgressing Rolling out what happened"},
		"the same":          {status(v1alpha1.RolloutProgressing, 1), status(v1alpha1.RolloutProgressing, 1), ""},
		"the next step":     {status(v1alpha1.RolloutProgressing, 1), status(v1alpha1.RolloutProgressing, 2), "Normal RolloutProgressing Rolling out what happened"},
		"paused":            {status(v1alpha1.RolloutProgressing, 1), status(v1alpha1.RolloutPaused, 1), "Normal RolloutPaused Paused: what happened"},
		"complete":          {status(v1alpha1.RolloutProgressing, 2), status(v1alpha1.RolloutComplete, 0), "Normal RolloutComplete Rolled out revision 2 to all nodes"},
		"halted":            {status(v1alpha1.RolloutProgressing, 2), status(v1alpha1.RolloutHalted, 2), "Warning RolloutHalted Halted: what happened"},
		"undone":            {status(v1alpha1.RolloutProgressing, 2), status(v1alpha1.RolloutUndone, 2), "Warning RolloutUndone Undone: what happened"},
		"two policies":      {status(v1alpha1.RolloutProgressing, 2), status(v1alpha1.RolloutContested, 2), "Warning RolloutContested Not rolled out: what happened"},
	} {
		r.announceRollout(&v1alpha1.TcxProgram{}, test.before, test.after)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The API server drops what older definitions lack. That isn't a change by another client.
func TestDroppedFieldsAreRestored(t *testing.T) {
	t.Parallel()
	status := func(problem, ofRollout string) v1alpha1.BpfProgramStatusCommon {
		return v1alpha1.BpfProgramStatusCommon{Problem: problem, Rollout: &v1alpha1.RolloutStatus{Revision: 2, Problem: ofRollout}}
	}
	for name, c := range map[string]struct {
		written, stored, want v1alpha1.BpfProgramStatusCommon
	}{
		"dropped":                 {status("a", "b"), status("", ""), status("a", "b")},
		"kept":                    {status("a", "b"), status("a", "b"), status("a", "b")},
		"changed by others":       {status("a", "b"), status("c", "d"), status("c", "d")},
		"before the first write":  {v1alpha1.BpfProgramStatusCommon{}, status("", ""), status("", "")},
		"without a rollout now":   {status("a", "b"), v1alpha1.BpfProgramStatusCommon{}, v1alpha1.BpfProgramStatusCommon{Problem: "a"}},
		"without one when it was": {v1alpha1.BpfProgramStatusCommon{Problem: "a"}, status("", ""), status("a", "")},
	} {
		stored := *c.stored.DeepCopy()
		if got := (note{status: c.written}).restored(stored); !equality.Semantic.DeepEqual(*got, c.want) || !equality.Semantic.DeepEqual(stored, c.stored) {
			t.Errorf("%s: %+v of %+v, want %+v", name, got, stored, c.want)
		}
	}
}
