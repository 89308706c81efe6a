// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// tracepoint returns an object for all nodes.
func tracepoint(name string) *v1alpha1.TracepointProgram {
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Names = "count", []string{"syscalls/sys_enter_kill"}
	o.Spec.ByteCode.Path = new("/object.o")
	return o
}

// says reports whether the first condition of an object starts with a text.
func says(t *testing.T, w *simulation.World, o v1alpha1.UserObject, text string) bool {
	t.Helper()
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return false
	}
	conditions := o.GetStatus().Conditions
	return len(conditions) > 0 && strings.HasPrefix(conditions[0].Type+": "+conditions[0].Message, text)
}

// An object is attached on all nodes, and says so, although an agent crashes after its first write.
func TestAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		w.AddOperator("b").Start()
		nodes := []*simulation.Node{w.AddNode("n1"), w.AddNode("n2")}
		for _, n := range nodes {
			n.Agent.Start()
		}
		w.OnEvent(simulation.Nth(1, simulation.Match{Actor: nodes[0].Agent.Name, Verb: "create", Resource: "bpfprograms", Done: true}, w.Crash(10*time.Second)))
		o := tracepoint("counter")
		w.Create(o)
		took := w.Await(10*time.Minute, "success", func() bool { return says(t, w, o, "ReconcileSuccess: Attached on 2 of 2") })
		if ended := nodes[0].Agent.Running(); !ended {
			t.Error("the agent that crashed doesn't run")
		}
		t.Logf("attached and reported after %s", took)
	})
}
