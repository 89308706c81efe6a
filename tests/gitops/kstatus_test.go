// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package gitops tests how tools that apply manifests read the status of objects: kstatus, which Helm and Flux use,
// and Argo CD.
package gitops

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/status"
)

const generation = 2

// state is a state of a user object, and how tools have to read it.
type state struct {
	name string
	// summary is nil until the operator has written a status.
	summary *status.Summary
	want    kstatus.Status
	message string
	argo    string
}

var failures = []status.NodeReason{{Node: "node-b", Reason: "load pass: it has no function pass"}}

var states = []state{
	{name: "just applied", want: kstatus.InProgressStatus, message: "observed generation", argo: "Progressing"},
	{
		name: "just edited", summary: &status.Summary{Generation: generation - 1, Agents: 2, Matching: 2, Selected: 2, Attached: 2},
		want: kstatus.InProgressStatus, message: "observed generation", argo: "Progressing",
	},
	{
		name: "no node runs the agent yet", summary: &status.Summary{Generation: generation, Matching: 2},
		want: kstatus.InProgressStatus, message: "no node runs the agent yet", argo: "Progressing",
	},
	{
		name: "waiting for a node", summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 1, Waiting: 1, WaitingFor: []status.NodeReason{{Node: "node-b"}}},
		want: kstatus.InProgressStatus, message: "waiting for node-b", argo: "Progressing",
	},
	{
		name: "a failure that a retry can mend", summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 1, Failed: 1, Failures: failures},
		want: kstatus.InProgressStatus, message: "it has no function pass", argo: "Progressing",
	},
	{
		name: "a failure that stays", summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 1, Failed: 1, Stalled: 1, Failures: failures},
		want: kstatus.FailedStatus, message: "it has no function pass", argo: "Degraded",
	},
	{
		name:    "a failure that stays, and a node that hasn't reported",
		summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Waiting: 1, WaitingFor: []status.NodeReason{{Node: "node-a"}}, Failed: 1, Stalled: 1, Failures: failures},
		want:    kstatus.FailedStatus, message: "it has no function pass", argo: "Degraded",
	},
	{
		name: "an invalid selector", summary: &status.Summary{Generation: generation, Agents: 2, Invalid: "no operator"},
		want: kstatus.FailedStatus, message: "no operator", argo: "Degraded",
	},
	{
		name: "an object of another schema", summary: &status.Summary{Generation: generation, Agents: 2, Undecodable: "offset"},
		want: kstatus.FailedStatus, message: "offset", argo: "Degraded",
	},
	{
		name: "attached", summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 2},
		want: kstatus.CurrentStatus, argo: "Healthy",
	},
	{
		name: "nothing to attach to", summary: &status.Summary{Generation: generation, Agents: 2, Matching: 2, Selected: 2, Idle: 2},
		want: kstatus.CurrentStatus, argo: "Healthy",
	},
	{
		name: "being rolled out", summary: &status.Summary{
			Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 2,
			Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing, Message: "revision 2, step 1 of 3"},
		},
		want: kstatus.InProgressStatus, message: "revision 2, step 1 of 3", argo: "Progressing",
	},
	{
		name: "a rollout that halted", summary: &status.Summary{
			Generation: generation, Agents: 2, Matching: 2, Selected: 2, Attached: 2,
			Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted, Message: "1 of 1 nodes with revision 2 aren't healthy"},
		},
		want: kstatus.FailedStatus, message: "1 of 1 nodes with revision 2 aren't healthy", argo: "Degraded",
	},
	{
		name: "being deleted", summary: &status.Summary{Generation: generation, Agents: 2, Deleting: true},
		want: kstatus.InProgressStatus, message: "Being deleted", argo: "Progressing",
	},
	{
		name: "a node can't be reached", summary: &status.Summary{Generation: generation, Agents: 1, Matching: 2, Selected: 1, Attached: 1, Unreachable: 1},
		want: kstatus.CurrentStatus, argo: "Healthy",
	},
}

// object returns an object in the state, as the API server serves it.
func (s state) object(t *testing.T, kind v1alpha1.Kind[v1alpha1.UserObject]) *unstructured.Unstructured {
	t.Helper()
	o := kind.New()
	o.SetName("sample")
	o.SetGeneration(generation)
	o.GetStatus().ObservedGeneration = -1
	if s.summary != nil {
		o.GetStatus().ObservedGeneration = s.summary.Generation
		v1alpha1.SetConditions(&o.GetStatus().Conditions, s.summary.Conditions()...)
	}
	return served(t, kind.Name, o)
}

func served(t *testing.T, kind string, o any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	return u
}

func TestKstatus(t *testing.T) {
	for _, kind := range v1alpha1.UserKinds {
		for _, s := range states {
			t.Run(kind.Name+"/"+s.name, func(t *testing.T) {
				o := s.object(t, kind)
				checkKstatus(t, o, s.want, s.message)
				if s.summary == nil {
					return
				}
				// Clients of upstream's v0.5 read the first condition.
				condition, _ := s.summary.Condition()
				conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
				if err != nil || conditions[0].(map[string]any)["type"] != string(condition) || conditions[0].(map[string]any)["status"] != "True" { //nolint:errcheck // conditions are objects
					t.Errorf("conditions %v, want %s first: %v", conditions, condition, err)
				}
			})
		}
	}
}

func checkKstatus(t *testing.T, o *unstructured.Unstructured, want kstatus.Status, message string) {
	t.Helper()
	got, err := kstatus.Compute(o)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != want || !strings.Contains(got.Message, message) {
		t.Errorf("kstatus says %s: %s, want %s: %s", got.Status, got.Message, want, message)
	}
}

func TestKstatusOfPolicies(t *testing.T) {
	ready := metav1.Condition{Type: string(v1alpha1.Ready), Status: metav1.ConditionTrue, Reason: v1alpha1.PolicyReasonReady}
	invalid := metav1.Condition{Type: string(v1alpha1.Ready), Status: metav1.ConditionFalse, Reason: v1alpha1.PolicyReasonInvalid, Message: "the cause"}
	stalled := metav1.Condition{Type: string(v1alpha1.Stalled), Status: metav1.ConditionTrue, Reason: v1alpha1.PolicyReasonInvalid, Message: "the cause"}
	for _, c := range []struct {
		observed   int64
		conditions []metav1.Condition
		want       kstatus.Status
		message    string
	}{
		{-1, nil, kstatus.InProgressStatus, "observed generation"},
		{generation, []metav1.Condition{ready}, kstatus.CurrentStatus, ""},
		{generation, []metav1.Condition{invalid, stalled}, kstatus.FailedStatus, "the cause"},
	} {
		meta := metav1.ObjectMeta{Name: "sample", Generation: generation}
		rollout := &v1alpha1.RolloutPolicy{ObjectMeta: meta, Status: v1alpha1.RolloutPolicyStatus{ObservedGeneration: c.observed, Conditions: c.conditions}}
		checkKstatus(t, served(t, v1alpha1.RolloutPolicyKind.Name, rollout), c.want, c.message)
		bytecode := &v1alpha1.BytecodePolicy{ObjectMeta: meta, Status: v1alpha1.BytecodePolicyStatus{ObservedGeneration: c.observed, Conditions: c.conditions}}
		checkKstatus(t, served(t, v1alpha1.PolicyKind.Name, bytecode), c.want, c.message)
	}
	checkKstatus(t, served(t, v1alpha1.NodeKind.Name, &v1alpha1.BpfNode{}), kstatus.CurrentStatus, "")
}

func TestKstatusOfReports(t *testing.T) {
	for _, kind := range v1alpha1.ProgramKinds {
		for state, want := range map[v1alpha1.State]kstatus.Status{
			v1alpha1.Ready: kstatus.CurrentStatus, v1alpha1.Reconciling: kstatus.InProgressStatus, v1alpha1.Stalled: kstatus.FailedStatus,
		} {
			o := kind.New()
			o.GetStatus().Conditions = state.Conditions(v1alpha1.BpfProgCondLoaded.Condition("the cause"))
			message := "the cause"
			if state == v1alpha1.Ready {
				message = ""
			}
			checkKstatus(t, served(t, kind.Name, o), want, message)
		}
	}
}
