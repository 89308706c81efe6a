// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestNodePods(t *testing.T) {
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: DaemonSetName},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2},
	}
	leads, standsBy := make(chan struct{}), make(chan struct{})
	close(leads)
	with, without := fake.NewClientBuilder().WithObjects(daemonSet).Build(), fake.NewClientBuilder().Build()
	for name, c := range map[string]struct {
		collector NodePods
		want      string
	}{
		"two of three are ready": {NodePods{with, "bpfman", leads}, `
			# HELP bpfman_operator_node_pods Number of pods of the node components, by state: desired, which is the number of selected nodes, or ready.
			# TYPE bpfman_operator_node_pods gauge
			bpfman_operator_node_pods{state="desired"} 3
			bpfman_operator_node_pods{state="ready"} 2
		`},
		"another operator leads":   {NodePods{with, "bpfman", standsBy}, ""},
		"no DaemonSet":             {NodePods{without, "bpfman", leads}, ""},
		"DaemonSets of other uses": {NodePods{with, "default", leads}, ""},
	} {
		if err := testutil.CollectAndCompare(&c.collector, strings.NewReader(c.want)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
