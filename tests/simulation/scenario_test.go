// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// tcx returns an object for the uplink of all nodes.
func tcx(name, function string) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Priority = function, "ingress", 50
	o.Spec.InterfaceSelector.Interfaces = &[]string{simulation.Uplink}
	o.Spec.ByteCode.Path = new("/object.o")
	return o
}

// A node that a program cuts off is back within the limit, and says so.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		o := tcx("filter", simulation.CutOff)
		w.Create(o)
		silent := func() bool { reach, _ := n.Network.Reach(); return reach == simulation.Silent }
		w.Await(time.Minute, "cut off", silent)
		took := w.Await(45*time.Second, "back", func() bool { return !silent() })
		w.Await(time.Minute, "reported", func() bool { return says(t, w, o, "ReconcileError") })
		t.Logf("back after %s: %s", took, o.Status.Conditions[0].Message)
	})
}

func TestSpeed(t *testing.T) {
	for _, count := range []int{1, 3, 10} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			start := time.Now()
			const idle = 24 * time.Hour
			synctest.Test(t, func(t *testing.T) {
				w := simulation.New(t, simulation.Options{Seed: 1})
				w.AddOperator("a").Start()
				for i := range count {
					w.AddNode(fmt.Sprint("n", i)).Agent.Start()
				}
				w.Create(tracepoint("counter", "count"))
				w.Pass(idle)
			})
			t.Logf("%d nodes: %.1f hours a second", count, idle.Hours()/time.Since(start).Seconds())
		})
	}
}
