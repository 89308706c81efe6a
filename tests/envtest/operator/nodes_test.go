// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// changeNode edits a node.
func changeNode(t *testing.T, c client.Client, name string, edit func(*corev1.Node)) {
	t.Helper()
	envtest.Eventually(t, "edit node "+name, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := c.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
			return err
		}
		edit(node)
		return c.Update(ctx, node)
	})
}

// tainted adds taints like the cluster's own controllers, which mark lost and drained nodes with
// them.
func tainted(keys ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = nil
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
}

// Upstream's fault 21: after a node disappeared, statuses stayed the same forever. Nodes are
// added, drained, lost, found, left without an agent, and deleted. No object waits for a node
// that can't respond, counts a deleted node, or ignores a new one.
func TestUpstreamFault21NodesOfEachFate(t *testing.T) {
	c := cluster(t)
	pool := map[string]string{"pool": "fate"}
	addNode(t, c, "fate-a", pool)
	addNode(t, c, "fate-b", pool)
	o := tracepoint("fate", "fate")
	create(t, c, o)
	report(t, c, o, "fate-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for fate-b")

	// If it is unreachable, objects don't wait for it. It counts again when it is back.
	changeNode(t, c, "fate-b", tainted(corev1.TaintNodeUnreachable))
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node; 1 node that the node selector also matches can't be reached: fate-b")
	changeNode(t, c, "fate-b", tainted())
	shows(t, c, o, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for fate-b")
	left := report(t, c, o, "fate-b", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")

	// If it is drained, the DaemonSet's pod stays, and so do attached programs.
	changeNode(t, c, "fate-b", tainted(corev1.TaintNodeUnschedulable))
	later := tracepoint("fate-later", "fate")
	create(t, c, later)
	shows(t, c, later, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for fate-a, fate-b")
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")

	// Without an agent, and with one.
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fate-bare", Labels: pool}}
	create(t, c, bare)
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes; no agent runs on 1 node that the node selector also matches: fate-bare")
	addNode(t, c, "fate-c", pool)
	shows(t, c, o, "3/2/0 NotYetLoaded: Attached on 2 of 3 selected nodes, waiting for fate-c")

	// Deleted, with its reports.
	for _, name := range []string{"fate-c", "fate-bare", "fate-b"} {
		must.Succeed(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	envtest.Eventually(t, "the program of the node that is gone is deleted", gone(c, left))

	// A new node with the same name starts without reports.
	addNode(t, c, "fate-b-again", pool)
	shows(t, c, o, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for fate-b-again")

	// A deleted object disappears immediately, no matter what its nodes do.
	must.Succeed(t, c.Delete(t.Context(), o))
	envtest.Eventually(t, "the object is gone", gone(c, o))
}
