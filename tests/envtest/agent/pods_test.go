// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// pod creates a pod on this node, whose containers run.
func (n *node) pod(namespace, name string, labels map[string]string, containers ...string) *corev1.Pod {
	n.t.Helper()
	return n.podOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}, containers...)
}

// podOf is like pod, for a pod with other settings.
func (n *node) podOf(pod *corev1.Pod, containers ...string) *corev1.Pod {
	n.t.Helper()
	pod.Spec.NodeName = n.name
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c, Image: "x"})
	}
	n.create(pod)
	for _, c := range containers {
		n.run(pod, c, string(pod.UID)+"-"+c)
	}
	return pod
}

// run simulates the container runtime and the kubelet. A container starts, and replaces the one
// with the same name. An empty id ends it, and with it the pod's sandbox.
func (n *node) run(pod *corev1.Pod, name, id string) {
	n.t.Helper()
	n.mu.Lock()
	n.containers = slices.DeleteFunc(slices.Clone(n.containers), func(c program.Container) bool {
		return c.PodUID == string(pod.UID) && c.Name == name
	})
	if id != "" {
		n.lastPID++
		n.containers = append(n.containers, program.Container{
			Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), PodLabels: pod.Labels,
			HostNetwork: pod.Spec.HostNetwork, Sandbox: string(pod.UID), NetNS: fmt.Sprintf("/proc/%d/ns/net", n.lastPID),
			Name: name, ID: id, PID: n.lastPID,
		})
	}
	n.mu.Unlock()

	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if id == "" {
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	pod.Status.ContainerStatuses = slices.DeleteFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "test://" + id, State: state})
	must.Succeed(n.t, n.client.Status().Update(context.Background(), pod))
}

// running returns the containers of pods like the real runtime: by the pods' UIDs, with the pods'
// labels.
func (n *node) running(_ context.Context, pods []corev1.Pod) ([]program.Container, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []program.Container
	for _, c := range n.containers {
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == c.PodUID })
		switch {
		case i >= 0:
			c.PodLabels = pods[i].Labels
			out = append(out, c)
		case n.outlived[c.PodUID]:
			c.Deleted = true
			out = append(out, c)
		}
	}
	return out, n.containersErr
}

// address sets the node's internal addresses.
func (n *node) address(addresses ...string) {
	n.t.Helper()
	n.eventually("the node's addresses", func() error {
		var object corev1.Node
		if err := n.client.Get(context.Background(), n.key(), &object); err != nil {
			return err
		}
		object.Status.Addresses = nil
		for _, a := range addresses {
			object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n.client.Status().Update(context.Background(), &object)
	})
}

func addresses(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}
