// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var nodePodsDesc = prometheus.NewDesc("bpfman_operator_node_pods",
	"Number of pods of the node components, by state: desired, which is the number of selected nodes, or ready.", []string{"state"}, nil)

// readTimeout is how long a scrape waits for the cache, which has the DaemonSet once it is read.
const readTimeout = time.Second

// NodePods is a collector of the numbers of pods in the status of the DaemonSet, from the operator that leads. Without a
// DaemonSet, it collects nothing. Nodes whose pod is missing have no series of their own that could show it.
type NodePods struct {
	Client    client.Reader
	Namespace string
	// Leads is closed when this operator leads. Only then has it read the DaemonSet.
	Leads <-chan struct{}
}

// Describe implements [prometheus.Collector].
func (n *NodePods) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- nodePodsDesc }

// Collect implements [prometheus.Collector].
func (n *NodePods) Collect(collected chan<- prometheus.Metric) {
	select {
	case <-n.Leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var daemonSet appsv1.DaemonSet
	if err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.Namespace, Name: DaemonSetName}, &daemonSet); err != nil {
		return
	}
	for state, pods := range map[string]int32{"desired": daemonSet.Status.DesiredNumberScheduled, "ready": daemonSet.Status.NumberReady} {
		collected <- prometheus.MustNewConstMetric(nodePodsDesc, prometheus.GaugeValue, float64(pods), state)
	}
}
