// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"fmt"
	"testing"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// A node is compared with what its inspector measured for the programs that the reports name.
func TestRunTimes(t *testing.T) {
	begun := metav1.NewTime(time.Unix(1_800_000_000, 0))
	before, after := metav1.NewTime(begun.Add(-time.Second)), metav1.NewTime(begun.Add(time.Second))
	measured := func(program uint32, loaded metav1.Time, average, previous int64) []rollout.RunTime {
		return []rollout.RunTime{{Program: program, Loaded: loaded, Average: average, Previous: previous}}
	}
	for name, c := range map[string]struct {
		limit int32
		// before is what was measured before the rollout began, and measured after that.
		before, measured []rollout.RunTime
		want             Changing
	}{
		"no limit":             {0, nil, nil, Changing{Healthy: 1}},
		"not measured":         {200, nil, nil, Changing{Waiting: 1, Names: []string{"node: the inspector hasn't measured run times"}}},
		"of another program":   {200, nil, measured(11, after, 900, 100), Changing{Waiting: 1, Names: []string{"node: the inspector hasn't measured run times"}}},
		"few runs":             {200, nil, measured(12, after, 0, 100), Changing{Waiting: 1, Names: []string{"node: the program hasn't run often enough to compare run times"}}},
		"within the limit":     {200, nil, measured(12, after, 200, 100), Changing{Healthy: 1}},
		"over the limit":       {200, nil, measured(12, after, 201, 100), Changing{Failed: 1, Names: []string{"node: a run takes 201 ns on average, and 100 ns in the previous revision"}}},
		"nothing ran before":   {200, nil, measured(12, after, 0, 0), Changing{Healthy: 1}},
		"wasn't loaded again":  {200, measured(12, before, 900, 100), measured(12, before, 950, 100), Changing{Healthy: 1}},
		"of a reused id":       {200, measured(12, before, 900, 100), measured(12, after, 950, 100), Changing{Failed: 1, Names: []string{"node: a run takes 950 ns on average, and 100 ns in the previous revision"}}},
		"the node's clock":     {200, nil, measured(12, before, 900, 100), Changing{Failed: 1, Names: []string{"node: a run takes 900 ns on average, and 100 ns in the previous revision"}}},
		"the limit is just it": {100, nil, measured(12, after, 100, 100), Changing{Healthy: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			x, uid := NewIndex(), types.UID("u")
			ref := Ref{Kind: "TcxProgram", NamespacedName: types.NamespacedName{Name: "firewall"}}
			x.SetNode("node", nil, true)
			x.AddAgent("node", "pod")
			x.SetOwner(ref, uid, Owner{Generation: 1, Programs: 1, Selector: everywhere(0).Selector})
			x.SetHealth("node", rollout.Health{RunTimes: c.before})
			x.SetOwner(ref, uid, Owner{
				Generation: 2, Programs: 1, Selector: everywhere(0).Selector,
				Rollout: &v1alpha1.RolloutStatus{Revision: 2, Started: &begun, StepStarted: &begun, MaxRunTimePercent: c.limit},
			})
			x.SetHealth("node", rollout.Health{RunTimes: c.measured})
			x.SetReport(&reports.Report{
				Name: "report", ProgramID: 12, Owner: unique.Make(reports.Owner{Kind: ref.Kind, Name: ref.Name, UID: uid}),
				Node:  unique.Make(reports.Node{Label: "node", Name: "node"}),
				State: unique.Make(reports.State{Generation: 2, Condition: v1alpha1.BpfProgCondLoaded, Linked: true}),
			})
			summary, _ := x.Summary(uid)
			if got := summary.Changing; fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// inStep returns an index with one node whose agent reports the newest revision in a step, and a function that begins a step.
func inStep(t *testing.T, reported reports.State) (*Index, func(step int32)) {
	t.Helper()
	x := cluster(t, "a")
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	begin := func(step int32) {
		owner := everywhere(2)
		owner.Rollout = &v1alpha1.RolloutStatus{Revision: 2, Step: step, Started: &at, StepStarted: &at}
		x.SetOwner(ref, uid, owner)
	}
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(reportOf("a", "report", reported))
	return x, begin
}

func changing(t *testing.T, x *Index, want Changing) {
	t.Helper()
	if s, _ := x.Summary(uid); fmt.Sprint(s.Changing) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", s.Changing, want)
	}
}

var loaded = reports.State{Generation: 2, Condition: v1alpha1.BpfProgCondLoaded, Linked: true}

// A conflict counts if the operator learned of it in this step. The clocks of nodes don't matter, and neither does a conflict
// that ends and returns.
func TestConflictsOfAStep(t *testing.T) {
	old := metav1.NewTime(time.Unix(0, 0))
	future := metav1.NewTime(time.Unix(4_000_000_000, 0))
	of := func(program uint32, since, loaded metav1.Time) rollout.Health {
		owner := v1alpha1.BpfNodeOwner{Kind: ref.Kind, Name: ref.Name}
		return rollout.Health{Conflicts: []rollout.Conflict{{BpfNodeOwner: owner, Type: "ForeignXDP", Program: program, Since: since, Loaded: loaded, Message: "another"}}}
	}
	none, ok, halts := rollout.Health{}, Changing{Healthy: 1}, Changing{Failed: 1, Names: []string{"a: another"}}
	t.Run("known before", func(t *testing.T) {
		x, begin := inStep(t, loaded)
		x.SetHealth("a", of(7, old, old))
		begin(1)
		changing(t, x, ok)
		x.SetHealth("a", none)
		x.SetHealth("a", of(7, future, old)) // it returns
		changing(t, x, ok)
		x.SetHealth("a", of(8, old, future))
		changing(t, x, halts)
		begin(2) // a user has accepted it
		changing(t, x, ok)
	})
	t.Run("known when the operator started", func(t *testing.T) {
		for _, c := range []struct {
			since, loaded metav1.Time
			want          Changing
		}{{old, future, ok}, {future, old, halts}, {future, metav1.Time{}, ok}} {
			x := cluster(t, "a")
			at := metav1.NewTime(time.Unix(1_800_000_000, 0))
			owner := everywhere(2)
			owner.Rollout = &v1alpha1.RolloutStatus{Revision: 2, Step: 1, Started: &at, StepStarted: &at}
			x.SetOwner(ref, uid, owner)
			x.SetReport(reportOf("a", "report", loaded))
			x.SetHealth("a", of(7, c.since, c.loaded))
			changing(t, x, c.want)
		}
	})
}

// So does a termination.
func TestTerminationsOfAStep(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
	x, begin := inStep(t, loaded)
	x.SetReadiness("a", "agent-a", time.Time{}, at(4_000_000_000)) // it was there when the operator started
	begin(1)
	changing(t, x, Changing{Healthy: 1})
	x.SetReadiness("a", "agent-a", time.Time{}, at(1))
	changing(t, x, Changing{Failed: 1, Names: []string{"a: the agent or the daemon terminated at 1970-01-01T00:00:01Z"}})
	begin(2)
	changing(t, x, Changing{Healthy: 1})
}

// What a node's inspector says counts as long as the node has a BpfNode. A new BpfNode can be about what happened before.
func TestHealthThatGoes(t *testing.T) {
	x, begin := inStep(t, loaded)
	owner := v1alpha1.BpfNodeOwner{Kind: ref.Kind, Name: ref.Name}
	conflict := rollout.Health{Conflicts: []rollout.Conflict{{BpfNodeOwner: owner, Type: "ForeignXDP", Program: 7, Message: "another"}}}
	begin(1)
	x.SetHealth("a", rollout.Health{})
	if refs := x.SetHealth("a", conflict); len(refs) != 1 {
		t.Errorf("the conflict changes %v", refs)
	}
	changing(t, x, Changing{Failed: 1, Names: []string{"a: another"}})
	x.DeleteHealth("a")
	changing(t, x, Changing{Healthy: 1})
	x.SetHealth("a", conflict)
	changing(t, x, Changing{Healthy: 1})
}

// A program that isn't measured anymore isn't compared with what it was.
func TestRunTimesThatGo(t *testing.T) {
	x := cluster(t, "a")
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	x.SetOwner(ref, uid, everywhere(1))
	x.SetHealth("a", rollout.Health{})
	owner := everywhere(2)
	owner.Rollout = &v1alpha1.RolloutStatus{Revision: 2, Step: 1, Started: &at, StepStarted: &at, MaxRunTimePercent: 200}
	x.SetOwner(ref, uid, owner)
	report := reportOf("a", "report", loaded)
	report.ProgramID = 12
	x.SetReport(report)
	x.SetHealth("a", rollout.Health{RunTimes: []rollout.RunTime{{Program: 12, Loaded: at, Average: 300, Previous: 100}}})
	changing(t, x, Changing{Failed: 1, Names: []string{"a: a run takes 300 ns on average, and 100 ns in the previous revision"}})
	x.SetHealth("a", rollout.Health{})
	changing(t, x, Changing{Waiting: 1, Names: []string{"a: the inspector hasn't measured run times"}})
}

// What can't be attached in a tenant's pod doesn't stop the rollout of a cluster-scoped program.
func TestFailuresInPods(t *testing.T) {
	inPods := reports.State{Generation: 2, Condition: v1alpha1.BpfProgCondNotLoaded, Message: "no free slot", InPods: true}
	x, begin := inStep(t, inPods)
	begin(1)
	changing(t, x, Changing{Healthy: 1})
	inPods.InPods = false
	x.SetReport(reportOf("a", "report", inPods))
	changing(t, x, Changing{Failed: 1, Names: []string{"a: no free slot"}})

	inPods.InPods = true
	of := ref
	of.Namespace = "tenant"
	x, begin = inStep(t, inPods)
	x.objects[uid].ref = of
	begin(1)
	changing(t, x, Changing{Failed: 1, Names: []string{"a: no free slot"}})
}

func TestTerminatedAt(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}
	for name, c := range map[string]struct {
		status corev1.ContainerStatus
		want   time.Time
	}{
		"a new pod":          {corev1.ContainerStatus{Name: deploy.AgentContainer}, time.Time{}},
		"the agent is back":  {corev1.ContainerStatus{Name: deploy.AgentContainer, LastTerminationState: ended}, at.Time},
		"the daemon is away": {corev1.ContainerStatus{Name: deploy.DaemonContainer, State: ended}, at.Time},
		"the inspector":      {corev1.ContainerStatus{Name: deploy.InspectorContainer, LastTerminationState: ended}, time.Time{}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c.status}}}
		if got := terminatedAt(pod); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
