// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// TestNodeSelector selects a node by a label that comes and goes.
func TestNodeSelector(t *testing.T) {
	requireType(t, "TCX")
	const key = "e2e.bpfman.io/selected"
	o := tcx("e2e-selected", "lo")
	o.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{key: "yes"}}
	first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: under.nodes()[0]}}
	awaitAttachedOn := func(ctx context.Context, t *testing.T, nodes int) {
		t.Helper()
		await(ctx, t, fmt.Sprintf("attached on %d nodes, and successful", nodes), func(ctx context.Context) (bool, string) {
			c, err := conditionOf(ctx, o)
			counts := o.GetStatus().Nodes
			if err != nil || counts == nil {
				return false, fmt.Sprint(err)
			}
			loaded, err := loadedFor(ctx, o.GetUID())
			ok := c.Type == string(v1alpha1.ProgramReconcileSuccess) && int(counts.Selected) == nodes && int(counts.Attached) == nodes && len(loaded) == nodes
			return ok, fmt.Sprintf("%s %s, %v, loaded %v, %v", c.Type, c.Message, *counts, loaded, err)
		})
	}
	feature(t,
		step{"no node", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitAttachedOn(ctx, s, 0)
		}},
		step{"the label comes", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, first, func(n *corev1.Node) { n.Labels[key] = "yes" })
			t.Cleanup(func() {
				modify(context.WithoutCancel(ctx), t, first, func(n *corev1.Node) { delete(n.Labels, key) })
			})
			awaitAttachedOn(ctx, s, 1)
		}},
		step{"and goes", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, first, func(n *corev1.Node) { delete(n.Labels, key) })
			awaitAttachedOn(ctx, s, 0)
		}},
	)
}

// TestNodesWithoutAgent has nodes that nothing can be attached on: they don't block.
func TestNodesWithoutAgent(t *testing.T) {
	requireType(t, "TCX")
	o := tcx("e2e-nodes", "lo")
	dead := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e2e-no-such-machine"}}
	feature(t,
		step{"a node that is no machine", func(ctx context.Context, s *testing.T) {
			create(ctx, t, dead)
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
			if counts := o.Status.Nodes; counts == nil || int(counts.Attached) != len(under.nodes()) {
				s.Errorf("attached on %v, want all %d nodes with an agent", counts, len(under.nodes()))
			}
			if c := o.Status.Conditions[0]; !strings.Contains(c.Message, "no agent runs on 1 node") {
				s.Errorf("the condition doesn't tell of the node without an agent: %s", c.Message)
			}
		}},
		step{"a cordoned node", func(ctx context.Context, s *testing.T) {
			first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: under.nodes()[0]}}
			t.Cleanup(func() {
				modify(context.WithoutCancel(ctx), t, first, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			})
			modify(ctx, s, first, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			other := tcx("e2e-cordoned", "lo")
			create(ctx, t, other)
			awaitSuccess(ctx, s, other)
			exactly(ctx, s, other, 1)
		}},
	)
}
