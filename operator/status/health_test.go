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
	"k8s.io/apimachinery/pkg/labels"
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
		limit    int32
		measured []rollout.RunTime
		want     Changing
	}{
		"no limit":             {0, nil, Changing{}},
		"not measured":         {200, nil, Changing{Waiting: 1, Names: []string{"node: the inspector hasn't measured run times"}}},
		"of another program":   {200, measured(11, after, 900, 100), Changing{Waiting: 1, Names: []string{"node: the inspector hasn't measured run times"}}},
		"few runs":             {200, measured(12, after, 0, 100), Changing{Waiting: 1, Names: []string{"node: the program hasn't run often enough to compare run times"}}},
		"within the limit":     {200, measured(12, after, 200, 100), Changing{}},
		"over the limit":       {200, measured(12, after, 201, 100), Changing{Failed: 1, Names: []string{"node: a run takes 201 ns on average, and 100 ns in the previous revision"}}},
		"nothing ran before":   {200, measured(12, after, 0, 0), Changing{}},
		"wasn't loaded again":  {200, measured(12, before, 900, 100), Changing{}},
		"loaded at that time":  {200, measured(12, begun, 900, 100), Changing{Failed: 1, Names: []string{"node: a run takes 900 ns on average, and 100 ns in the previous revision"}}},
		"the limit is just it": {100, measured(12, after, 100, 100), Changing{}},
	} {
		t.Run(name, func(t *testing.T) {
			x, uid := NewIndex(), types.UID("u")
			ref := Ref{Kind: "TcxProgram", NamespacedName: types.NamespacedName{Name: "firewall"}}
			x.SetNode("node", nil, true)
			x.AddAgent("node", "pod")
			x.SetOwner(ref, uid, Owner{
				Generation: 2, Programs: 1, Selector: labels.Everything(),
				Rollout: &v1alpha1.RolloutStatus{Started: &begun, StepStarted: &begun, MaxRunTimePercent: c.limit},
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
