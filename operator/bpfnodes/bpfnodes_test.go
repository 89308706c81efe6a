// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfnodes

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/bpfman/bpfman-operator/operator/deploy"
)

func daemonSet(selector map[string]string, containers ...string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	ds.Spec.Template.Spec.NodeSelector = selector
	for _, name := range containers {
		ds.Spec.Template.Spec.Containers = append(ds.Spec.Template.Spec.Containers, corev1.Container{Name: name})
	}
	return ds
}

// A BpfNode would stay on a node that an administrator taints, although no inspector can run there anymore.
func TestTaints(t *testing.T) {
	gpu := corev1.Taint{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoExecute}
	exists := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	for name, c := range map[string]struct {
		taint       corev1.Taint
		tolerations []corev1.Toleration
		want        bool
	}{
		"not tolerated":      {gpu, nil, false},
		"tolerated":          {gpu, []corev1.Toleration{exists}, true},
		"another is":         {gpu, []corev1.Toleration{{Key: "fpga", Operator: corev1.TolerationOpExists}}, false},
		"another value is":   {gpu, []corev1.Toleration{{Key: "gpu", Value: "false"}}, false},
		"all are":            {gpu, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, true},
		"a preference":       {corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}, nil, true},
		"cordoned":           {corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, nil, true},
		"unreachable":        {corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, nil, true},
		"is never to be run": {corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, nil, false},
	} {
		ds := daemonSet(nil, deploy.InspectorContainer)
		ds.Spec.Template.Spec.Tolerations = c.tolerations
		before, after := &corev1.Node{}, &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{c.taint}}}
		if got := toRun(ds, after); got != c.want {
			t.Errorf("%s: the inspector runs: %v", name, got)
		}
		if !taintsChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) || taintsChanged(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
			t.Errorf("%s: the taint isn't noticed", name)
		}
	}
}

func pod(node string, containers ...corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{ContainerStatuses: containers}}
}

func TestKept(t *testing.T) {
	linux := map[string]string{"kubernetes.io/os": "linux"}
	inspector := corev1.ContainerStatus{Name: deploy.InspectorContainer}
	ended := corev1.ContainerStatus{Name: deploy.InspectorContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	for name, c := range map[string]struct {
		daemonSet *appsv1.DaemonSet
		pods      []corev1.Pod
		want      bool
	}{
		"is to run":                    {daemonSet(linux, "bpfman", deploy.InspectorContainer), nil, true},
		"on other nodes":               {daemonSet(map[string]string{"ebpf": "true"}, deploy.InspectorContainer), nil, false},
		"disabled":                     {daemonSet(linux, "bpfman"), []corev1.Pod{pod("node", corev1.ContainerStatus{Name: "bpfman"})}, false},
		"disabled, and still there":    {daemonSet(linux, "bpfman"), []corev1.Pod{pod("node", inspector)}, true},
		"disabled, and ended":          {daemonSet(linux, "bpfman"), []corev1.Pod{pod("node", ended)}, false},
		"disabled, and on another one": {daemonSet(linux, "bpfman"), []corev1.Pod{pod("other", inspector)}, false},
		"uninstalled":                  {nil, nil, false},
		"being uninstalled":            {nil, []corev1.Pod{pod("node", inspector)}, true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: linux}}
		if got := toRun(c.daemonSet, node) || runs(c.pods, node); got != c.want {
			t.Errorf("%s: kept is %v", name, got)
		}
	}
}
