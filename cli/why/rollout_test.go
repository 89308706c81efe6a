// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// A node that reads an image for the first time is neither attached nor failed.
func TestImageIsRead(t *testing.T) {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "stats", UID: "u", Generation: 1}}
	report := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}}}
	report.Status = v1alpha1.BpfProgramStatus{
		Node: "a", OwnerGeneration: 1, Conditions: []metav1.Condition{v1alpha1.BpfProgCondNone.Condition("image quay.io/x: waiting for its registry")},
	}
	page, err := Explain(Facts{
		Kind: "TcxProgram", Object: o, Reports: []v1alpha1.ProgramObject{report}, Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
	})
	if err != nil || len(page.Nodes) != 1 || page.Nodes[0].State != Outdated || len(page.Nodes[0].Remarks) != 1 || len(page.Nodes[0].Remedies) != 1 {
		t.Errorf("%+v, %v", page.Nodes, err)
	}
}

// TestHeldBack checks that a node which keeps an earlier revision on purpose isn't blamed on its agent.
func TestHeldBack(t *testing.T) {
	object := func(generation int64) *v1alpha1.TcxProgram {
		o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "stats", UID: "u", Generation: generation}}
		o.Spec.BpfFunctionName = "stats"
		return o
	}
	revision, err := rollout.RevisionOf(object(2))
	if err != nil {
		t.Fatal(err)
	}
	nobody, everybody := new(int64(0)), (*int64)(nil)
	previous := &v1alpha1.RolloutRevision{Revision: 1}
	for name, c := range map[string]struct {
		rollout *v1alpha1.RolloutStatus
		state   State
		remark  string
	}{
		"no policy matches":      {nil, Outdated, "the agent hasn't processed the last change of the object yet"},
		"all nodes change":       {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Hash: revision.Hash(), Until: everybody}, Outdated, "the agent hasn't reported the last change yet: with a RolloutPolicy, it first waits until the API server responds over a new connection, at most for bpfman.agent.confirm.timeout (30s by default)"},
		"others come first":      {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing, Hash: revision.Hash(), Revision: 2, Until: nobody, Previous: previous}, RollingOut, "the node keeps revision 1, because the rollout of revision 2 hasn't reached it yet"},
		"undone":                 {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutUndone, Hash: revision.Hash(), Revision: 2, Until: nobody, Previous: previous}, RollingOut, "the node keeps revision 1, because the rollout of revision 2 was undone"},
		"a first revision":       {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutHalted, Hash: revision.Hash(), Revision: 1, Until: nobody}, RollingOut, "the node runs nothing, because the rollout of revision 1 was halted"},
		"an undecided change":    {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Hash: "of another"}, RollingOut, "the node keeps what it runs until the operator has decided how to roll out the last change"},
		"several policies match": {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutContested, Hash: revision.Hash(), Revision: 2, Until: nobody, Previous: previous}, RollingOut, "the node keeps revision 1, because the rollout of revision 2 waits for what the object's status names"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(2)
			o.Status.Rollout = c.rollout
			report := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}}}
			report.Status = v1alpha1.BpfProgramStatus{Node: "a", OwnerGeneration: 1, Conditions: []metav1.Condition{v1alpha1.BpfProgCondLoaded.Condition()}}
			page, err := Explain(Facts{
				Kind: "TcxProgram", Object: o, Reports: []v1alpha1.ProgramObject{report}, Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
			})
			if err != nil || len(page.Nodes) != 1 || page.Nodes[0].State != c.state || len(page.Nodes[0].Remarks) != 1 || page.Nodes[0].Remarks[0] != c.remark {
				t.Errorf("%+v, %v", page.Nodes, err)
			}
		})
	}
}
