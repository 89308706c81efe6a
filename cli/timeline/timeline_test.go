// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package timeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

var start = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// at returns a time some minutes after the start.
func at(minutes int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
}

func object() *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "firewall", UID: "uid"}}
	o.Status.Rollout = &v1alpha1.RolloutStatus{
		Policy: "careful", State: v1alpha1.RolloutHalted, Revision: 2, Step: 2, Nodes: 3, Message: "1 of 3 nodes isn't healthy\nd: refused",
		Started: new(at(20)), StepStarted: new(at(25)),
	}
	o.Status.Conditions = []metav1.Condition{{Type: "ReconcileError", LastTransitionTime: at(30)}, {Type: "Stalled", Status: metav1.ConditionTrue, LastTransitionTime: at(31)}, {Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: at(40)}}
	return o
}

// report returns the report of a node about a generation. It was loaded some minutes after the start, unless that is negative.
func report(node string, generation int64, loaded int, condition v1alpha1.BpfProgramConditionType, changed int, message string) v1alpha1.ProgramObject {
	p := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name: "firewall-" + node, UID: types.UID(node), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(object(), v1alpha1.SchemeGroupVersion.WithKind("TcxProgram"))},
	}}
	p.Status = v1alpha1.BpfProgramStatus{Node: node, OwnerGeneration: generation, Conditions: []metav1.Condition{condition.Condition(message)}}
	p.Status.Conditions[0].LastTransitionTime = at(changed)
	if loaded >= 0 {
		p.Status.ProgramID, p.Status.LoadedAt = 7, at(loaded).Format(loadedFormat)
	}
	return p
}

// told returns the entries as lines: minutes after the start, revision, nodes, and what.
func told(entries []Occurrence) string {
	var lines strings.Builder
	for _, e := range entries {
		minutes := fmt.Sprint(e.Time.Sub(start).Minutes())
		if e.Until != nil {
			minutes += fmt.Sprint("-", e.Until.Sub(start).Minutes())
		}
		failed := map[bool]string{true: "!"}[e.Failed]
		fmt.Fprintf(&lines, "%s r%d %s: %s%s\n", minutes, e.Revision, strings.Join(e.Nodes, ","), e.What, failed)
	}
	return lines.String()
}

func TestOf(t *testing.T) {
	revisions := []Revision{
		{Number: 1, Created: at(0), Since: []int64{1}}, {Number: 2, Created: at(20), Since: []int64{3}, Changes: []string{"spec.bytecode.image.url", "spec.priority"}},
	}
	reports := []v1alpha1.ProgramObject{
		report("a", 2, 1, v1alpha1.BpfProgCondLoaded, 9, ""), report("b", 1, 2, v1alpha1.BpfProgCondLoaded, 9, ""),
		report("c", 3, 21, v1alpha1.BpfProgCondLoaded, 1, ""), report("d", 3, 2, v1alpha1.BpfProgCondNotLoaded, 26, "the verifier refuses it\nR1 is invalid"),
		report("g", 3, 1, v1alpha1.BpfProgCondLoaded, 2, ""), report("e", 3, -1, v1alpha1.BpfProgCondNoInterfacesOnNode, 27, "no interface matches"), report("f", 3, -1, v1alpha1.BpfProgCondNone, 28, "waits"),
	}
	stranger := report("x", 3, 22, v1alpha1.BpfProgCondLoaded, 1, "")
	stranger.SetOwnerReferences(nil)
	events := []corev1.Event{
		{InvolvedObject: corev1.ObjectReference{UID: "uid"}, LastTimestamp: at(22), Count: 3, Reason: "Reloaded", Message: "on node c\nmore"},
		{
			InvolvedObject: corev1.ObjectReference{UID: "d"}, EventTime: metav1.NewMicroTime(at(24).Time), Reason: "NotLoaded", Type: corev1.EventTypeWarning, Message: "no",
			Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(29).Time)},
		},
		{InvolvedObject: corev1.ObjectReference{UID: "another"}, LastTimestamp: at(23), Reason: "Other"},
	}
	got := told(Of(object(), revisions, append(reports, stranger), EventsOf(object(), reports, events)))
	want := `0 r1 : created
1-2 r1 a,b: loaded
20 r2 : changed: spec.bytecode.image.url, spec.priority
20 r2 g: runs without a reload
20 r2 : rollout started, by policy careful
21 r2 c: loaded
22 r0 : Reloaded (3 times): on node c
25 r2 : step 2 of the rollout started, on 3 nodes
26 r2 d: failed: the verifier refuses it!
27 r2 e: nothing to attach to: no interface matches
29 r0 d: NotLoaded: no!
31 r2 : rollout halted: 1 of 3 nodes isn't healthy!
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Of the members of an application, a node has the one that failed, or else the one that was loaded last.
func TestMembers(t *testing.T) {
	revisions := []Revision{{Number: 1, Created: at(0), Since: []int64{1}}}
	members := []v1alpha1.ProgramObject{
		report("a", 1, 3, v1alpha1.BpfProgCondLoaded, 1, ""), report("a", 1, 5, v1alpha1.BpfProgCondLoaded, 1, ""),
		report("b", 1, -1, v1alpha1.BpfProgCondNotLoaded, 4, "no"), report("b", 1, 6, v1alpha1.BpfProgCondLoaded, 1, ""),
	}
	o := object()
	o.Status.Rollout = nil
	for range 2 {
		if got, want := told(Of(o, revisions, members, nil)), "0 r1 : created\n4 r1 b: failed: no!\n5 r1 a: loaded\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		slices.Reverse(members)
	}
}

// A revision that returned is the newest one again.
func TestIn(t *testing.T) {
	all := []Revision{{Number: 2, Since: []int64{3}}, {Number: 3, Since: []int64{1, 6}}}
	for generation, want := range map[int64]int64{0: 0, 1: 3, 2: 3, 3: 2, 5: 2, 6: 3, 9: 3} {
		is := int64(0)
		if i := In(all, generation); i >= 0 {
			is = all[i].Number
		}
		if is != want {
			t.Errorf("in generation %d, the revision is %d, want %d", generation, is, want)
		}
	}
}

// A revision that returned is older than the one before it.
func TestReturned(t *testing.T) {
	revisions := []Revision{{Number: 3, Created: at(0), Since: []int64{1, 3}, Changes: []string{"spec.priority"}}, {Number: 2, Created: at(5), Since: []int64{2}}}
	o := object()
	o.Status.Rollout = nil
	got := told(Of(o, revisions, []v1alpha1.ProgramObject{report("a", 3, 1, v1alpha1.BpfProgCondLoaded, 6, "")}, nil))
	if want := "5 r2 : created\n5 r3 : returned, and so changed: spec.priority\n6 r3 a: runs without a reload\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Where a revision can't be loaded, the one that was there at the time of the load runs on.
func TestCount(t *testing.T) {
	t.Parallel()
	revisions := []Revision{
		{Number: 2, Created: at(10), Since: []int64{2}},
		{Number: 3, Created: at(0), Since: []int64{1, 3}}, // it was the first one, and has returned
		{Number: 4, Created: at(20), Since: []int64{4}},
		{Number: 5, Created: at(30), Since: []int64{5}},
	}
	kept := func(node string, loaded int) v1alpha1.ProgramObject {
		r := report(node, 5, loaded, v1alpha1.BpfProgCondNotLoaded, 31, "refused")
		r.GetStatus().Previous = true
		return r
	}
	running, failed := Count(object(), revisions, []v1alpha1.ProgramObject{
		report("a", 5, 31, v1alpha1.BpfProgCondLoaded, 31, ""), kept("b", 12), kept("c", 25),
		report("d", 5, -1, v1alpha1.BpfProgCondNotLoaded, 31, "refused"), report("e", 2, 11, v1alpha1.BpfProgCondLoaded, 11, ""),
	})
	if got, want := fmt.Sprint(running, failed), "[1 1 1 1] [0 0 0 3]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
