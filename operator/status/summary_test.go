// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

func TestCondition(t *testing.T) {
	loadError := NodeReason{Node: "node-b", Reason: "load pass: verifier says no"}
	for _, c := range []struct {
		name      string
		summary   Summary
		condition v1alpha1.ProgramConditionType
		message   string
	}{
		{
			"attached everywhere",
			Summary{Agents: 3, Matching: 3, Selected: 3, Attached: 3},
			v1alpha1.ProgramReconcileSuccess, "Attached on 3 of 3 selected nodes",
		},
		{
			"one node",
			Summary{Agents: 1, Matching: 1, Selected: 1, Attached: 1},
			v1alpha1.ProgramReconcileSuccess, "Attached on 1 of 1 selected node",
		},
		{
			"nothing to attach to on some",
			Summary{Agents: 9, Matching: 9, Selected: 9, Attached: 6, Idle: 3, IdleOn: []NodeReason{{Node: "a", Reason: "no container matches"}, {Node: "b", Reason: "no interface matches"}}},
			v1alpha1.ProgramReconcileSuccess, "Attached on 6 of 9 selected nodes; nothing to attach to on a (no container matches), b (no interface matches) and 1 more",
		},
		{
			"nodes without agent don't block",
			Summary{Agents: 2, Matching: 3, Selected: 2, Attached: 2, WithoutAgent: []string{"node-c"}},
			v1alpha1.ProgramReconcileSuccess, "Attached on 2 of 2 selected nodes; no agent runs on 1 node that the node selector also matches: node-c",
		},
		{
			"nor do nodes that can't be reached",
			Summary{Agents: 1, Matching: 9, Selected: 1, Attached: 1, Unreachable: 7, OutOfReach: []string{"a", "b", "c", "d", "e"}, WithoutAgent: []string{"f"}},
			v1alpha1.ProgramReconcileSuccess,
			"Attached on 1 of 1 selected node; no agent runs on 1 node that the node selector also matches: f; " +
				"7 nodes that the node selector also matches can't be reached: a, b, c, d, e and 2 more",
		},
		{
			"no node matches",
			Summary{Agents: 3},
			v1alpha1.ProgramReconcileSuccess, "No node matches the node selector",
		},
		{
			"none that matches runs an agent",
			Summary{Agents: 3, Matching: 2, Unreachable: 1, WithoutAgent: []string{"node-c"}, OutOfReach: []string{"node-b"}},
			v1alpha1.ProgramReconcileSuccess, "The node selector matches 2 nodes, but no agent runs there: node-c, node-b",
		},
		{
			"none that matches can be reached",
			Summary{Agents: 3, Matching: 2, Unreachable: 2, OutOfReach: []string{"node-b", "node-c"}},
			v1alpha1.ProgramReconcileSuccess, "The node selector matches 2 nodes, but none can be reached: node-b, node-c",
		},
		{
			"no agent anywhere",
			Summary{Matching: 2},
			v1alpha1.ProgramNotYetLoaded, "Waiting for the node components: no node runs the agent yet",
		},
		{
			"roll-out",
			Summary{Agents: 10, Matching: 10, Selected: 10, Attached: 3, Waiting: 7, WaitingFor: []NodeReason{{Node: "a", Reason: ""}, {Node: "b", Reason: "image quay.io/x:v1: waiting for its registry"}, {Node: "c", Reason: ""}, {Node: "d", Reason: ""}, {Node: "e", Reason: ""}}},
			v1alpha1.ProgramNotYetLoaded, "Attached on 3 of 10 selected nodes, waiting for a, b (image quay.io/x:v1: waiting for its registry), c, d, e and 2 more",
		},
		{
			"roll-out with a failure",
			Summary{Agents: 3, Matching: 3, Selected: 3, Attached: 1, Waiting: 1, WaitingFor: []NodeReason{{Node: "node-c"}}, Failed: 1, Failures: []NodeReason{loadError}},
			v1alpha1.ProgramNotYetLoaded, "Attached on 1 of 3 selected nodes, waiting for node-c; failed on 1 node: node-b: load pass: verifier says no",
		},
		{
			"failures",
			Summary{Agents: 9, Matching: 9, Selected: 9, Attached: 1, Failed: 8, Failures: []NodeReason{loadError, {Node: "node-d", Reason: "no such interface: eth7"}}},
			v1alpha1.ProgramReconcileError, "Failed on 8 nodes, attached on 1 of 9 selected nodes: node-b: load pass: verifier says no; node-d: no such interface: eth7 and 6 more",
		},
		{
			"failures for the same reason",
			Summary{Agents: 9, Matching: 9, Selected: 9, Failed: 4, Failures: []NodeReason{{Node: "a", Reason: "no"}, {Node: "b", Reason: "never"}, {Node: "c", Reason: "no"}}},
			v1alpha1.ProgramReconcileError, "Failed on 4 nodes, attached on 0 of 9 selected nodes: a, c: no; b: never and 1 more",
		},
		{
			"a rollout that the failures explain",
			Summary{
				Agents: 3, Matching: 3, Selected: 3, Attached: 2, Failed: 1, Previous: 1, Failures: []NodeReason{{Node: "a", Reason: "no"}},
				Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted, Message: "1 of 1 nodes aren't healthy (a: no)"},
			},
			v1alpha1.ProgramReconcileError, "Rollout halted: 1 of 1 nodes aren't healthy (a: no). Attached on 2 of 3 selected nodes; failed on 1 node, where the previous revision keeps running",
		},
		{
			"a rollout beside other failures",
			Summary{
				Agents: 3, Matching: 3, Selected: 3, Attached: 1, Failed: 2, Failures: []NodeReason{{Node: "a", Reason: "no"}, {Node: "b", Reason: "never"}},
				Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted, Message: "1 of 1 nodes aren't healthy (a: no)"},
			},
			v1alpha1.ProgramReconcileError, "Rollout halted: 1 of 1 nodes aren't healthy (a: no). Attached on 1 of 3 selected nodes; failed on 2 nodes: a: no; b: never",
		},
		{
			"failures, beside the previous revision",
			Summary{Agents: 9, Matching: 9, Selected: 9, Failed: 2, Previous: 2, Failures: []NodeReason{loadError}},
			v1alpha1.ProgramReconcileError, "Failed on 2 nodes, where the previous revision keeps running, attached on 0 of 9 selected nodes: node-b: load pass: verifier says no and 1 more",
		},
		{
			"failures, on some nodes beside the previous revision",
			Summary{Agents: 9, Matching: 9, Selected: 9, Failed: 2, Previous: 1, Failures: []NodeReason{loadError}},
			v1alpha1.ProgramReconcileError, "Failed on 2 nodes, on 1 of which the previous revision keeps running, attached on 0 of 9 selected nodes: node-b: load pass: verifier says no and 1 more",
		},
		{
			"a node that isn't selected anymore can't unload",
			Summary{Agents: 9, Matching: 1, Selected: 1, Attached: 1, Failed: 1, Failures: []NodeReason{{Node: "node-x", Reason: "unload 12: timed out"}}},
			v1alpha1.ProgramReconcileError, "Failed on 1 node, attached on 1 of 1 selected node: node-x: unload 12: timed out",
		},
		{
			"selector that can't be understood",
			Summary{Agents: 9, Invalid: `"Near" is not a valid label selector operator`},
			v1alpha1.ProgramReconcileError, `The node selector is invalid: "Near" is not a valid label selector operator`,
		},
		{"deletion", Summary{Deleting: true, Agents: 3, Reporting: 2}, v1alpha1.ProgramNotYetLoaded, "Being deleted, waiting for 2 nodes to unload its programs"},
		{"unloaded", Summary{Deleting: true, Agents: 3}, v1alpha1.ProgramNotYetLoaded, "Being deleted, its programs are unloaded"},
		{
			"deletion that fails",
			Summary{Deleting: true, Agents: 3, Failed: 1, Failures: []NodeReason{{Node: "node-x", Reason: "unload 12: timed out"}}},
			v1alpha1.ProgramDeleteError, "Failed to unload on 1 node: node-x: unload 12: timed out",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			condition, said := c.summary.Condition()
			if condition != c.condition || said.Text != c.message {
				t.Errorf("got  %s %q\nwant %s %q", condition, said.Text, c.condition, c.message)
			}
		})
	}
}

// The status names what its message is about, in the order of the message.
func TestProblem(t *testing.T) {
	t.Parallel()
	node := func(reason problem.Reason) NodeReason { return NodeReason{Node: "a", Problem: reason} }
	for name, test := range map[string]struct {
		summary Summary
		want    problem.Reason
	}{
		"attached":                         {Summary{Agents: 1, Matching: 1, Selected: 1, Attached: 1}, ""},
		"failed":                           {Summary{Agents: 1, Matching: 1, Selected: 1, Failed: 1, Failures: []NodeReason{node("VerifierRefused")}}, "VerifierRefused"},
		"failed, the first without a name": {Summary{Agents: 2, Matching: 2, Selected: 2, Failed: 2, Failures: []NodeReason{node(""), node("NoSuchSymbol")}}, ""},
		"failed and waiting":               {Summary{Agents: 2, Matching: 2, Selected: 2, Failed: 1, Waiting: 1, Failures: []NodeReason{node("InterfaceFull")}, WaitingFor: []NodeReason{node("RegistryPending")}}, "InterfaceFull"},
		"waiting for a registry":           {Summary{Agents: 1, Matching: 1, Selected: 1, Waiting: 1, WaitingFor: []NodeReason{node("RegistryPending")}}, "RegistryPending"},
		"not unloaded":                     {Summary{Deleting: true, Failed: 1, Failures: []NodeReason{node("DaemonBusy")}}, "DaemonBusy"},
		"being deleted":                    {Summary{Deleting: true}, "BeingDeleted"},
		"not decoded":                      {Summary{Undecodable: "spec is a string"}, "ObjectUnreadable"},
		"a node selector that's none":      {Summary{Invalid: "the operator is ?"}, "NodeSelectorInvalid"},
		"a rollout that is halted": {Summary{
			Agents: 1, Matching: 1, Selected: 1, Failed: 1, Failures: []NodeReason{node("NoSuchSymbol")}, Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted, Problem: "RolloutHalted"},
		}, "RolloutHalted"},
		"a rollout with failures within its limit": {Summary{
			Agents: 1, Matching: 1, Selected: 1, Failed: 1, Failures: []NodeReason{node("NoSuchSymbol")}, Rollout: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing},
		}, "NoSuchSymbol"},
		"no agents":                      {Summary{Matching: 1}, "NoAgents"},
		"no node matches":                {Summary{Agents: 1}, "NoNodeMatches"},
		"no agent there":                 {Summary{Agents: 1, Matching: 1, WithoutAgent: []string{"a"}}, "NodesWithoutAgent"},
		"not reachable":                  {Summary{Agents: 1, Matching: 1, Unreachable: 1, OutOfReach: []string{"a"}}, "NodesUnreachable"},
		"idle, and one without an agent": {Summary{Agents: 1, Matching: 2, Selected: 1, Idle: 1, IdleOn: []NodeReason{node("")}, WithoutAgent: []string{"b"}}, "NothingMatches"},
	} {
		if got := test.summary.status(&v1alpha1.BpfProgramStatusCommon{}).Problem; got != string(test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestMessageIsBounded(t *testing.T) {
	s := Summary{Agents: 5000, Matching: 5000, Selected: 5000, Failed: 5000}
	for i := range maxNamed {
		s.Failures = append(s.Failures, NodeReason{Node: fmt.Sprintf("%0250d", i), Reason: strings.Repeat("é", 5000)})
	}
	_, said := s.Condition()
	message := said.Text
	if len(message) > maxMessage || !utf8.ValidString(message) || !strings.HasPrefix(message, "Failed on 5000 nodes") || !strings.HasSuffix(message, " and 4995 more") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
}

// An object that is attached nowhere, because nothing matches, is Ready, and says so.
func TestNothingMatchedIsNotAttached(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		summary Summary
		reason  string
	}{
		"attached":                          {Summary{Agents: 1, Matching: 1, Selected: 1, Attached: 1}, "ReconcileSuccess"},
		"attached on one, idle on another":  {Summary{Agents: 2, Matching: 2, Selected: 2, Attached: 1, Idle: 1}, "ReconcileSuccess"},
		"idle on all":                       {Summary{Agents: 2, Matching: 2, Selected: 2, Idle: 2}, "NothingMatched"},
		"no node matches":                   {Summary{Agents: 2}, "NothingSelected"},
		"no agent runs where it would":      {Summary{Agents: 2, Matching: 1, WithoutAgent: []string{"a"}}, "NothingSelected"},
		"idle on one, failed on another":    {Summary{Agents: 2, Matching: 2, Selected: 2, Idle: 1, Failed: 1}, "ReconcileError"},
		"idle on one, not reported by some": {Summary{Agents: 2, Matching: 2, Selected: 2, Idle: 1, Waiting: 1}, "ProgramsNotYetLoaded"},
	} {
		conditions := test.summary.Conditions()
		if ready := conditions[1]; ready.Type != "Ready" || ready.Reason != test.reason {
			t.Errorf("%s: %+v, want the reason %s", name, ready, test.reason)
		}
		if ready := conditions[1].Status == metav1.ConditionTrue; ready != (conditions[0].Reason == "ReconcileSuccess") {
			t.Errorf("%s: Ready is %t, and the first condition is %+v", name, ready, conditions[0])
		}
	}
}

// Upstream's v0.6 has other names for the first condition of a ClusterBpfApplication.
func TestConditionsOfAClusterBpfApplication(t *testing.T) {
	for want, summary := range map[string]Summary{
		"Success Ready":             {Agents: 1, Matching: 1, Selected: 1, Attached: 1},
		"Pending Ready Reconciling": {Agents: 1, Matching: 1, Selected: 1, Waiting: 1},
		"Error Ready Reconciling":   {Agents: 1, Matching: 1, Selected: 1, Failed: 1},
		"DeleteError Ready Stalled": {Deleting: true, Failed: 1, Stalled: 1},
	} {
		summary.Kind = "ClusterBpfApplication"
		conditions := summary.Conditions()
		types := make([]string, len(conditions))
		for i, c := range conditions {
			types[i] = c.Type
		}
		if got := strings.Join(types, " "); got != want || conditions[0].Reason != conditions[0].Type {
			t.Errorf("%s, want %s: %+v", got, want, conditions[0])
		}
	}
}

// kstatus reads these conditions beside upstream's.
func TestConditionsForTools(t *testing.T) {
	halted := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted}
	for name, test := range map[string]struct {
		summary                     Summary
		ready, reconciling, stalled metav1.ConditionStatus
	}{
		"attached":                    {Summary{Generation: 3, Agents: 1, Matching: 1, Selected: 1, Attached: 1}, "True", "False", "False"},
		"waiting":                     {Summary{Generation: 3, Agents: 1, Matching: 1, Selected: 1, Waiting: 1}, "False", "True", "False"},
		"failed, and tried again":     {Summary{Generation: 3, Agents: 1, Matching: 1, Selected: 1, Failed: 1}, "False", "True", "False"},
		"failed for good":             {Summary{Generation: 3, Agents: 1, Matching: 1, Selected: 1, Failed: 1, Stalled: 1}, "False", "False", "True"},
		"not decoded":                 {Summary{Generation: 3, Undecodable: "spec is a string"}, "False", "False", "True"},
		"a node selector that's none": {Summary{Generation: 3, Invalid: "the operator is ?"}, "False", "False", "True"},
		"attached, and halted":        {Summary{Generation: 3, Agents: 1, Matching: 1, Selected: 1, Attached: 1, Rollout: halted}, "False", "False", "True"},
	} {
		got := map[string]metav1.ConditionStatus{}
		for _, c := range test.summary.Conditions() {
			got[c.Type] = c.Status
			if c.ObservedGeneration != 3 {
				t.Errorf("%s: %+v", name, c)
			}
		}
		for kind, want := range map[string]metav1.ConditionStatus{"Ready": test.ready, "Reconciling": test.reconciling, "Stalled": test.stalled} {
			if is, there := got[kind]; there && is != want || !there && want == "True" {
				t.Errorf("%s: %s is %q, want %s", name, kind, is, want)
			}
		}
	}
}
