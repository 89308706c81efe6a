// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

// TestRollback attaches a program that drops everything on the interface to the API server. The node rolls it back by
// itself, and the version before runs again.
func TestRollback(t *testing.T) {
	requireType(t, "TCX")
	const space = "e2e-rollback"
	// The API server of a cluster with one node is behind that node's loopback interface.
	nodes, iface := under.nodes(), "lo"
	if len(nodes) > 1 {
		iface = "eth0"
	}
	victim := nodes[len(nodes)-1]
	o := tcx(space, iface)
	o.Spec.ByteCode.Image.ImagePullPolicy = v1alpha1.PullAlways
	o.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelHostname: victim}
	var token string
	state := func(ctx context.Context, c v1alpha1.BpfProgramConditionType, words string) {
		t.Helper()
		awaitFor(ctx, t, 3*time.Minute, string(c)+": "+words, func(ctx context.Context) (bool, string) {
			var list v1alpha1.BpfProgramList
			err := under.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelOwnedByProgram: space})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Status.Conditions) == 0 {
				return false, "there is no report"
			}
			is := list.Items[0].Status.Conditions[0]
			return is.Type == string(c) && strings.Contains(is.Message, words), is.Type + ": " + is.Message
		})
	}
	feature(t,
		step{"a version is confirmed", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			token = metricsReader(ctx, t, space, "reader")
			create(ctx, t, o)
			state(ctx, v1alpha1.BpfProgCondLoaded, "")
			await(ctx, s, "the change is confirmed", func(ctx context.Context) (bool, string) {
				return strings.Contains(readAgent(ctx, s, token, victim), "bpfman_agent_unconfirmed_changes 0"), "it isn't"
			})
		}},
		step{"one that cuts off the node is rolled back", func(ctx context.Context, s *testing.T) {
			// Components lose their connections, and the operator its lease.
			for _, component := range []string{node.Operator, node.Agent, node.CSI, node.Inspector} {
				under.restarts.Expect(component, restarts.Unlimited)
			}
			start := time.Now()
			modify(ctx, s, o, func(o *v1alpha1.TcxProgram) { o.Spec.BpfFunctionName = "tcx_drop" })
			state(ctx, v1alpha1.BpfProgCondRolledBack, "and got one after it was rolled back: generation 1 runs again")
			s.Logf("the report came %s after the change", time.Since(start).Round(time.Second/10))
		}},
		step{"the next version is tried", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TcxProgram) { o.Spec.BpfFunctionName = "tcx_next" })
			awaitSuccess(ctx, s, o)
			state(ctx, v1alpha1.BpfProgCondLoaded, "")
		}},
	)
}
