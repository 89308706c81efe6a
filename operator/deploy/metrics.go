// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/operator/takeover"
)

var nodePodsDesc = prometheus.NewDesc("bpfman_operator_node_pods",
	"Number of pods of the node components, by state: desired, which is the number of selected nodes; scheduled; updated, which has the current "+
		"configuration; ready; or late, which hasn't been ready for more than 10 minutes.", []string{"state"}, nil)

// readTimeout is how long a scrape waits for the cache, which has the DaemonSet once it is read.
const readTimeout = time.Second

// lateAfter is how long a pod can take to be ready, including the time to pull its images.
const lateAfter = 10 * time.Minute

// NodePods is a collector of the numbers of pods in the status of the DaemonSet, and of its late pods, from the operator that
// leads. Without a DaemonSet, it collects nothing. Nodes whose pod is missing have no series of their own that could show it.
type NodePods struct {
	Client    client.Reader
	Namespace string
	// Leads is closed when this operator leads. Only then has it read the DaemonSet.
	Leads <-chan struct{}
	Clock clock.PassiveClock
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
	var pods corev1.PodList
	if err := n.Client.List(ctx, &pods, client.InNamespace(n.Namespace), client.HasLabels{takeover.PartOfLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	status := daemonSet.Status
	for state, count := range map[string]int32{
		"desired": status.DesiredNumberScheduled, "scheduled": status.CurrentNumberScheduled, "updated": status.UpdatedNumberScheduled,
		"ready": status.NumberReady, "late": n.late(pods.Items),
	} {
		collected <- prometheus.MustNewConstMetric(nodePodsDesc, prometheus.GaugeValue, float64(count), state)
	}
}

// late counts the pods that haven't been ready for a long time.
func (n *NodePods) late(pods []corev1.Pod) (late int32) {
	for i := range pods {
		since, ready := pods[i].CreationTimestamp.Time, false
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady {
				since, ready = c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
			}
		}
		if !ready && n.Clock.Since(since) > lateAfter {
			late++
		}
	}
	return late
}
