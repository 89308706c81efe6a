// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// stagedCounter returns the object in a revision, with the state of its rollout.
func stagedCounter(tag string, state v1alpha1.RolloutState) *v1alpha1.TcxProgram {
	o := counter()
	o.Spec.ByteCode.Image.Url = "registry.example.com/team/counter:" + tag
	is := v1alpha1.Reconciling
	first := v1alpha1.ProgramNotYetLoaded.Condition("Rollout progressing: revision 3, step 1 of 3 on 1 of 4 nodes. Attached on 4 of 4 selected nodes")
	if state.Stalled() {
		is, first = v1alpha1.Stalled, v1alpha1.ProgramReconcileError.Condition("Rollout halted: 1 of 1 nodes with revision 3 aren't healthy (b: no luck)")
	}
	if state == v1alpha1.RolloutComplete {
		is, first = v1alpha1.Ready, v1alpha1.ProgramReconcileSuccess.Condition("Attached on 4 of 4 selected nodes")
	}
	o.Status.Conditions = is.Conditions(first)
	o.Status.Rollout = &v1alpha1.RolloutStatus{Policy: "staged", State: state, Revision: 3, Step: 1}
	if revision, err := rollout.RevisionOf(o); err == nil {
		o.Status.Rollout.Hash = revision.Hash()
	}
	return o
}

// history returns the revisions of the object: two earlier tags, and its own.
func history(t *testing.T, tags ...string) []client.Object {
	t.Helper()
	var all []client.Object
	for i, tag := range tags {
		o := stagedCounter(tag, v1alpha1.RolloutComplete)
		o.Generation = int64(i + 1)
		if i == 0 {
			o.Spec.Priority = 50
			o.Spec.NodeSelector.MatchLabels = map[string]string{"zone": "b"}
			o.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "2026-01-01T00:00:00Z"}
		}
		revision, err := rollout.RevisionOf(o)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(revision)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "bpfman", Name: fmt.Sprint("counter-", i), CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Duration(len(tags)-i) * 24 * time.Hour)),
				Labels:          map[string]string{v1alpha1.LabelRevisionOf: string(ownerUID)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, v1alpha1.SchemeGroupVersion.WithKind("TcxProgram"))},
			},
			Revision: int64(i + 1), Data: runtime.RawExtension{Raw: stored},
		})
	}
	return all
}

// roll runs a command, and returns its output, its error, and the object afterwards.
func roll(t *testing.T, objects []client.Object, args ...string) (string, *v1alpha1.TcxProgram, error) {
	t.Helper()
	c, err := clusterOf(objects...)()
	if err != nil {
		t.Fatal(err)
	}
	out, _, failed := execute(t, func() (*cluster.Cluster, error) { return c, nil }, append([]string{"rollout"}, args...)...)
	after := &v1alpha1.TcxProgram{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "counter"}, after); err != nil {
		t.Fatal(err)
	}
	return out, after, failed
}

// reportOf returns the report of a node about the object in a generation.
func reportOf(node string, generation int64, condition metav1.Condition) client.Object {
	o := counter()
	o.Generation = generation
	return report(o, "TcxProgram", node, "tcx_stats", 7, condition)
}

func TestRolloutHistory(t *testing.T) {
	objects := append(history(t, "v1", "v2", "v3"), stagedCounter("v3", v1alpha1.RolloutHalted),
		reportOf("a", 2, v1alpha1.BpfProgCondLoaded.Condition("")), reportOf("b", 3, v1alpha1.BpfProgCondNotLoaded.Condition("no luck")),
		reportOf("c", 2, v1alpha1.BpfProgCondLoaded.Condition("")), reportOf("d", 4, v1alpha1.BpfProgCondLoaded.Condition("")))
	out, _, err := roll(t, objects, "history", "tcxprogram/counter")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out, "rollout-history.golden")
	if out, _, err = roll(t, objects, "history", "tcxprogram/counter", "--revision", "1"); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out, "rollout-revision.golden")
	if out, _, err = roll(t, objects, "history", "tcxprogram/counter", "--diff"); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out, "rollout-diff.golden")
	if out, _, err = roll(t, objects, "history", "tcxprogram/counter", "--diff", "--revision=3"); err != nil || strings.Contains(out, ":v1") || !strings.Contains(out, "+      url: registry.example.com/team/counter:v3") {
		t.Errorf("printed %s, %v", out, err)
	}
	if out, _, err = roll(t, objects, "history", "counter", "--revision", "1", "-o", "jsonpath={.kind} {.metadata.name} {.spec.bytecode.image.url}"); err != nil || out != "TcxProgram counter registry.example.com/team/counter:v1" {
		t.Errorf("printed %q, %v", out, err)
	}
	if _, _, err = roll(t, objects, "history", "tcxprogram/counter", "--revision", "9"); err == nil || err.Error() != "there is no revision 9" {
		t.Error(err)
	}
	if _, _, err = roll(t, []client.Object{counter()}, "history", "tcxprogram/counter"); err == nil || !strings.Contains(err.Error(), "has no revisions: bpfman's operator records each one") {
		t.Error(err)
	}
}

func TestRolloutTimeline(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Now().Add(-time.Duration(minutes) * time.Minute))
	}
	when := func(o client.Object, minutes int) client.Object {
		p, ok := o.(v1alpha1.ProgramObject)
		if !ok {
			t.Fatalf("%T isn't a report", o)
		}
		p.GetStatus().LoadedAt, p.GetStatus().Conditions[0].LastTransitionTime = "", at(minutes)
		return o
	}
	halted := stagedCounter("v3", v1alpha1.RolloutHalted)
	halted.Status.Rollout.Message, halted.Status.Rollout.Started = "1 of 1 nodes with revision 3 aren't healthy (b: no luck)", new(at(12))
	for i := range halted.Status.Conditions {
		halted.Status.Conditions[i].LastTransitionTime = at(9)
	}
	objects := append(history(t, "v1", "v2", "v3"), halted,
		when(reportOf("a", 2, v1alpha1.BpfProgCondLoaded.Condition("")), 1500), when(reportOf("c", 2, v1alpha1.BpfProgCondLoaded.Condition("")), 1400),
		when(reportOf("b", 3, v1alpha1.BpfProgCondNotLoaded.Condition("no luck\nR1 is invalid")), 11),
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, InvolvedObject: corev1.ObjectReference{UID: ownerUID}, LastTimestamp: at(10), Reason: "RolloutHalted", Message: "revision 3 is held"})
	out, _, err := roll(t, objects, "timeline", "tcxprogram/counter")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out, "rollout-timeline.golden")
}

func TestRolloutStatusOfNodes(t *testing.T) {
	staged := stagedCounter("v3", v1alpha1.RolloutHalted)
	staged.Generation = 3
	staged.Status.Rollout.Until, staged.Status.Rollout.Previous = new(int64(0)), &v1alpha1.RolloutRevision{Revision: 2}
	zone := map[string]string{"zone": "a"}
	objects := append(history(t, "v1", "v2", "v3"), staged, node("a", zone), node("b", zone), node("c", zone), agent("a"), agent("b"), agent("c"),
		reportOf("a", 2, v1alpha1.BpfProgCondLoaded.Condition("")), reportOf("b", 3, v1alpha1.BpfProgCondNotLoaded.Condition("no luck\nat all")))
	out, _, err := roll(t, objects, "status", "tcxprogram/counter", "--nodes")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out, "rollout-nodes.golden")
}

func TestRolloutUndo(t *testing.T) {
	objects := append(history(t, "v1", "v2", "v3"), stagedCounter("v3", v1alpha1.RolloutHalted))
	out, o, err := roll(t, objects, "undo", "tcxprogram/counter")
	if err != nil || out != "tcxprogram.bpfman.io/counter rolled back to revision 2\n" || o.Spec.ByteCode.Image.Url != "registry.example.com/team/counter:v2" {
		t.Errorf("%q %v %+v", out, err, o.Spec)
	}
	out, o, err = roll(t, objects, "undo", "tcxprogram/counter", "--to-revision=1")
	if err != nil || out != "tcxprogram.bpfman.io/counter rolled back to revision 1\n" || o.Spec.ByteCode.Image.Url != "registry.example.com/team/counter:v1" ||
		o.Spec.Priority != 50 || o.Spec.NodeSelector.MatchLabels["zone"] != "a" || o.Annotations[v1alpha1.AnnotationRestartedAt] == "" {
		t.Errorf("%q %v %+v", out, err, o)
	}
	if _, _, err = roll(t, objects, "undo", "tcxprogram/counter", "--to-revision=3"); err == nil || err.Error() != "tcxprogram.bpfman.io/counter already has revision 3" {
		t.Error(err)
	}
	only := append(history(t, "v3"), stagedCounter("v3", v1alpha1.RolloutComplete))
	only[1].(*v1alpha1.TcxProgram).Spec.Priority = 50 //nolint:errcheck // see above
	only[1].SetAnnotations(map[string]string{v1alpha1.AnnotationRestartedAt: "2026-01-01T00:00:00Z"})
	if _, _, err = roll(t, only, "undo", "tcxprogram/counter"); err == nil || err.Error() != "tcxprogram.bpfman.io/counter has no other revision" {
		t.Error(err)
	}
}

func TestRolloutControl(t *testing.T) {
	paused := stagedCounter("v3", v1alpha1.RolloutPaused)
	paused.Annotations = map[string]string{v1alpha1.AnnotationRolloutPaused: "true"}
	waits := stagedCounter("v3", v1alpha1.RolloutPaused)
	progressing := stagedCounter("v3", v1alpha1.RolloutProgressing)
	both := stagedCounter("v3", v1alpha1.RolloutHalted)
	both.Annotations = map[string]string{v1alpha1.AnnotationRolloutPaused: "true"}
	for _, test := range []struct {
		command string
		object  *v1alpha1.TcxProgram
		want    string
		is      func(*v1alpha1.TcxProgram) bool
	}{
		{"pause", progressing, "tcxprogram.bpfman.io/counter paused", func(o *v1alpha1.TcxProgram) bool { return o.Annotations[v1alpha1.AnnotationRolloutPaused] == "true" }},
		{"pause", paused, "tcxprogram.bpfman.io/counter is already paused", nil},
		{"pause", counter(), "tcxprogram.bpfman.io/counter isn't rolled out in steps: no RolloutPolicy matches it", nil},
		{"resume", paused, "tcxprogram.bpfman.io/counter resumed", func(o *v1alpha1.TcxProgram) bool { return len(o.Annotations) == 0 }},
		{"resume", both, "tcxprogram.bpfman.io/counter resumed", func(o *v1alpha1.TcxProgram) bool {
			return len(o.Annotations) == 1 && o.Annotations[v1alpha1.AnnotationRolloutResumed] == "3/1"
		}},
		{"resume", waits, "tcxprogram.bpfman.io/counter resumed", func(o *v1alpha1.TcxProgram) bool { return o.Annotations[v1alpha1.AnnotationRolloutResumed] == "3/1" }},
		{"resume", stagedCounter("v3", v1alpha1.RolloutHalted), "tcxprogram.bpfman.io/counter resumed", func(o *v1alpha1.TcxProgram) bool { return o.Annotations[v1alpha1.AnnotationRolloutResumed] == "3/1" }},
		{"resume", progressing, "tcxprogram.bpfman.io/counter is neither paused nor halted", nil},
		{"restart", counter(), "tcxprogram.bpfman.io/counter restarted", func(o *v1alpha1.TcxProgram) bool {
			at, err := time.Parse(time.RFC3339, o.Annotations[v1alpha1.AnnotationRestartedAt])
			return err == nil && time.Since(at) < time.Minute
		}},
	} {
		t.Run(test.command+" "+test.want, func(t *testing.T) {
			out, o, err := roll(t, []client.Object{test.object}, test.command, "tcxprogram", "counter")
			if test.is == nil {
				if err == nil || err.Error() != test.want {
					t.Error(err)
				}
				return
			}
			if err != nil || strings.TrimSpace(out) != test.want || !test.is(o) {
				t.Errorf("%q %v %v", out, err, o.Annotations)
			}
		})
	}
}

func TestRolloutStatus(t *testing.T) {
	behind := stagedCounter("v3", v1alpha1.RolloutComplete)
	behind.Generation = 3
	restarted := stagedCounter("v3", v1alpha1.RolloutComplete)
	restarted.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "now"}
	resumed := stagedCounter("v3", v1alpha1.RolloutHalted)
	resumed.Annotations = map[string]string{v1alpha1.AnnotationRolloutResumed: "3/1"}
	contested := stagedCounter("v3", v1alpha1.RolloutContested)
	contested.Status.Rollout.Hash = "of the revision before"
	for _, test := range []struct {
		object    *v1alpha1.TcxProgram
		args      string
		out, fail string
	}{
		{stagedCounter("v3", v1alpha1.RolloutComplete), "", "tcxprogram.bpfman.io/counter successfully rolled out\n", ""},
		{stagedCounter("v3", v1alpha1.RolloutProgressing), "--watch=false", "Waiting for tcxprogram.bpfman.io/counter: Rollout progressing: revision 3, step 1 of 3 on 1 of 4 nodes. Attached on 4 of 4 selected nodes\n", ""},
		{behind, "--watch=false", "Waiting for tcxprogram.bpfman.io/counter: the operator hasn't processed the change yet\n", ""},
		{restarted, "--watch=false", "Waiting for tcxprogram.bpfman.io/counter: the operator hasn't processed the change yet\n", ""},
		{resumed, "--watch=false", "Waiting for tcxprogram.bpfman.io/counter: the operator hasn't processed the change yet\n", ""},
		{contested, "", "", "Rollout halted: 1 of 1 nodes with revision 3 aren't healthy (b: no luck)"},
		{stagedCounter("v3", v1alpha1.RolloutHalted), "", "", "Rollout halted: 1 of 1 nodes with revision 3 aren't healthy (b: no luck)"},
		{stagedCounter("v3", v1alpha1.RolloutComplete), "-o=jsonpath={.kind}:{.object}:{.complete}:{.failed}:{.rollout.revision}", "RolloutProgress:tcxprogram.bpfman.io/counter:true:false:3", ""},
		{stagedCounter("v3", v1alpha1.RolloutHalted), "-o=jsonpath={.complete}:{.failed}:{.message}", "false:true:Rollout halted: 1 of 1 nodes with revision 3 aren't healthy (b: no luck)", "Rollout halted: 1 of 1 nodes with revision 3 aren't healthy (b: no luck)"},
		{behind, "--watch=false -o=jsonpath={.complete}:{.message}", "false:the operator hasn't processed the change yet", ""},
		{behind, "--timeout=10ms", "Waiting for tcxprogram.bpfman.io/counter: the operator hasn't processed the change yet\n", "timed out waiting for the rollout"},
	} {
		out, _, err := roll(t, []client.Object{test.object}, strings.Fields("status tcxprogram/counter "+test.args)...)
		if out != test.out || (err == nil) != (test.fail == "") || err != nil && err.Error() != test.fail {
			t.Errorf("%q, %v; want %q, %q", out, err, test.out, test.fail)
		}
	}
}
