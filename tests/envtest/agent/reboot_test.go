// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// After a reboot, the daemon has no programs, and the kernel's ids start again. The ids in
// reports from before the reboot belong to other programs.
func TestReboot(t *testing.T) {
	n := start(t)
	o := n.tracepoint("reboot", "f", "a/x", "b/y")
	n.create(o)
	n.create(n.tracepoint("other", "g", "c/z"))
	n.holds("TracepointProgram/reboot f a/x b/y", "TracepointProgram/other g c/z")
	before := n.programs()
	n.crash()
	n.daemon = daemontest.New(t.TempDir())
	n.daemon.LoadedAt = "2026-02-02T00:00:00+0000"
	n.startAgent()
	n.eventually("the objects to tell of the new programs", func() error {
		for _, object := range n.programs() {
			if at := object.GetStatus().LoadedAt; at != n.daemon.LoadedAt {
				return fmt.Errorf("%s was loaded at %s", object.GetName(), at)
			}
		}
		return nil
	})
	n.holds("TracepointProgram/reboot f a/x b/y", "TracepointProgram/other g c/z")
	for _, object := range before {
		if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("%s isn't the same object: %v", object.GetName(), err)
		}
	}

	// An object that was deleted while the node was down leaves nothing.
	n.crash()
	n.delete(o)
	n.startAgent()
	n.holds("TracepointProgram/other g c/z")
}

// A drained node keeps its programs. The agent stays there, because DaemonSets ignore
// draining.
func TestDrainedNode(t *testing.T) {
	n := start(t)
	n.create(n.tracepoint("drained", "f", "a/x"))
	n.holds("TracepointProgram/drained f a/x")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	n.change(node, func() {
		node.Spec.Unschedulable = true
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	})
	n.create(n.tracepoint("later", "g", "b/y"))
	n.holds("TracepointProgram/drained f a/x", "TracepointProgram/later g b/y")
}

// Upstream's fault 20: the node was identified by its hostname label, which can differ from
// its name.
func TestUpstreamFault20TheNodesNameIsNotItsHostname(t *testing.T) {
	n := start(t)
	o := n.tracepoint("named", "f", "a/x")
	o.Spec.NodeSelector.MatchLabels["role"] = "gateway"
	n.create(o)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	n.change(node, func() { node.Labels[v1alpha1.LabelHostname], node.Labels["role"] = "ip-10-0-0-7", "gateway" })
	n.holds("TracepointProgram/named f a/x")
	n.change(node, func() { delete(node.Labels, "role") })
	n.holds()
}
