// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfnodes

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
