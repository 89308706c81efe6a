// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bpfman/bpfman-operator/operator/takeover"
)

func TestNodePods(t *testing.T) {
	now := time.Unix(100_000, 0)
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: DaemonSetName},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 6, CurrentNumberScheduled: 5, UpdatedNumberScheduled: 4, NumberReady: 2},
	}
	objects := []client.Object{daemonSet}
	for name, pod := range map[string]struct {
		created time.Duration
		ready   corev1.ConditionStatus
		changed time.Duration
		labels  map[string]string
	}{
		"always-ready":    {time.Hour, corev1.ConditionTrue, time.Hour, oursOnly},
		"ready-again":     {time.Hour, corev1.ConditionTrue, time.Second, oursOnly},
		"never-ready":     {time.Hour, corev1.ConditionFalse, time.Hour, oursOnly},
		"starts":          {time.Minute, corev1.ConditionFalse, time.Minute, oursOnly},
		"no-longer-ready": {time.Hour, corev1.ConditionFalse, time.Minute, oursOnly},
		"not-scheduled":   {time.Hour, "", 0, oursOnly},
		"upstreams":       {time.Hour, corev1.ConditionFalse, time.Hour, nil},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: name, Labels: pod.labels, CreationTimestamp: metav1.NewTime(now.Add(-pod.created))}}
		if pod.ready != "" {
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: pod.ready, LastTransitionTime: metav1.NewTime(now.Add(-pod.changed))}}
		}
		objects = append(objects, o)
	}
	leads, standsBy := make(chan struct{}), make(chan struct{})
	close(leads)
	with, without := fake.NewClientBuilder().WithObjects(objects...).Build(), fake.NewClientBuilder().Build()
	for name, c := range map[string]struct {
		client    client.Client
		namespace string
		leads     chan struct{}
		want      string
	}{
		"two pods are late": {with, "bpfman", leads, `
			# HELP bpfman_operator_node_pods Number of pods of the node components, by state: desired, which is the number of selected nodes; scheduled; updated, which has the current configuration; ready; or late, which hasn't been ready for more than 10 minutes.
			# TYPE bpfman_operator_node_pods gauge
			bpfman_operator_node_pods{state="desired"} 6
			bpfman_operator_node_pods{state="late"} 2
			bpfman_operator_node_pods{state="ready"} 2
			bpfman_operator_node_pods{state="scheduled"} 5
			bpfman_operator_node_pods{state="updated"} 4
		`},
		"another operator leads":   {with, "bpfman", standsBy, ""},
		"no DaemonSet":             {without, "bpfman", leads, ""},
		"DaemonSets of other uses": {with, "default", leads, ""},
	} {
		collector := &NodePods{Client: c.client, Namespace: c.namespace, Leads: c.leads, Clock: testingclock.NewFakePassiveClock(now)}
		if err := testutil.CollectAndCompare(collector, strings.NewReader(c.want)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// oursOnly are the labels that the cache keeps.
var oursOnly = map[string]string{takeover.PartOfLabel: "bpfman"}
