// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestNodeSelector selects a node by a label that is added and removed.
func TestNodeSelector(t *testing.T) {
	requireType(t, "TCX")
	const key = "e2e.bpfman.io/selected"
	o := tcx("e2e-selected", "lo")
	o.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{key: "yes"}}
	first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: under.nodes()[0]}}
	feature(t,
		step{"no node", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			attachedOn(ctx, s, o, nil)
		}},
		step{"the label comes", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, first, func(n *corev1.Node) { n.Labels[key] = "yes" })
			t.Cleanup(func() {
				modify(context.WithoutCancel(ctx), t, first, func(n *corev1.Node) { delete(n.Labels, key) })
			})
			attachedOn(ctx, s, o, []string{first.Name})
		}},
		step{"and goes", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, first, func(n *corev1.Node) { delete(n.Labels, key) })
			attachedOn(ctx, s, o, nil)
			if loaded, err := loadedFor(ctx, o.GetUID()); err != nil || len(loaded) > 0 {
				s.Errorf("no node is selected, and the daemons have %v, %v", loaded, err)
			}
		}},
	)
}

// TestNodesWithoutAgent adds nodes on which nothing can be attached. They don't block.
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

// TestNodeGone removes a node that reported programs. The reports are deleted, and their
// owners stay.
func TestNodeGone(t *testing.T) {
	const space, name = "e2e-gone", "e2e-gone"
	gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{name: "true"}}}
	selector := metav1.LabelSelector{MatchLabels: gone.Labels}
	cluster := tcx(name, "lo")
	cluster.Spec.NodeSelector = selector
	namespaced := tcxNs(space, name)
	namespaced.Spec.NodeSelector = selector
	reports := []v1alpha1.ProgramObject{&v1alpha1.BpfProgram{}, &v1alpha1.BpfNsProgram{}}
	feature(t,
		step{"it has reported", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, gone)
			for i, owner := range []v1alpha1.UserObject{cluster, namespaced} {
				create(ctx, t, owner)
				reportOf(ctx, s, reports[i], owner, name)
			}
			for _, owner := range []v1alpha1.UserObject{cluster, namespaced} {
				awaitSuccess(ctx, s, owner)
			}
			for _, report := range reports {
				get(ctx, s, report)
			}
		}},
		step{"it goes, and its reports with it", func(ctx context.Context, s *testing.T) {
			must.Succeed(s, remove(ctx, gone))
			for _, report := range reports {
				awaitGone(ctx, s, report)
			}
			for _, owner := range []v1alpha1.UserObject{cluster, namespaced} {
				awaitSuccess(ctx, s, owner)
			}
		}},
	)
}

// reportOf creates a report as the agent of a node, because other clients aren't allowed
// to.
func reportOf(ctx context.Context, t *testing.T, report v1alpha1.ProgramObject, owner v1alpha1.UserObject, nodeName string) {
	t.Helper()
	agent := asAgent(t)
	report.SetName(owner.GetName())
	report.SetNamespace(owner.GetNamespace())
	report.SetLabels(map[string]string{
		v1alpha1.LabelHostname: v1alpha1.LabelValue(nodeName), v1alpha1.LabelOwnedByProgram: owner.GetName(), v1alpha1.LabelOwnerKind: kindOf(owner),
	})
	report.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kindOf(owner), Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
	}})
	report.GetSpec().Type = "tcx"
	if err := agent.Create(ctx, report); err != nil {
		t.Fatalf("report of node %s: %v", nodeName, err)
	}
	report.GetStatus().Node = nodeName
	v1alpha1.SetConditions(&report.GetStatus().Conditions, v1alpha1.BpfProgCondLoaded.Condition())
	if err := agent.Status().Update(ctx, report); err != nil {
		t.Fatalf("report of node %s: %v", nodeName, err)
	}
}
