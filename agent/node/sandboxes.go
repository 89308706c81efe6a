// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/cri"
)

// podKey identifies a pod as the labels of its sandbox and containers do. The UID alone isn't
// enough: users can create a pod with [corev1.MirrorPodAnnotationKey] and the UID of
// another namespace's pod.
type podKey struct{ namespace, name, uid string }

func keyOf(labels map[string]string) podKey {
	return podKey{labels[cri.PodNamespaceLabel], labels[cri.PodNameLabel], labels[cri.PodUIDLabel]}
}

// sandbox is a pod's sandbox that is in use.
type sandbox struct {
	podKey

	labels map[string]string // of the pod
	// deleted means that the API server doesn't have the pod. superseded means that another
	// pod with its name has a newer sandbox.
	deleted, superseded bool
}

// container returns one of the sandbox's containers, as far as the list describes it.
func (s sandbox) container(c *runtimeapi.Container) program.Container {
	found := s.entry(c.GetPodSandboxId())
	found.Name, found.ID = c.GetLabels()[cri.ContainerNameLabel], c.GetId()
	return found
}

// entry returns the sandbox without a container.
func (s sandbox) entry(id string) program.Container {
	return program.Container{
		Namespace:  s.namespace,
		Pod:        s.name,
		PodUID:     s.uid,
		PodLabels:  s.labels,
		Deleted:    s.deleted,
		Superseded: s.superseded,
		Sandbox:    id,
	}
}

// inUse returns the sandboxes in use, by ID: those of pods that haven't ended, and those with a running
// container. The others are about to be removed.
func inUse(containers []*runtimeapi.Container, ready []*runtimeapi.PodSandbox, pods []corev1.Pod) map[string]sandbox {
	runs := map[string]bool{}
	for _, c := range containers {
		runs[c.GetPodSandboxId()] = runs[c.GetPodSandboxId()] || c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	known := byKey(pods)
	used, newest := map[string]sandbox{}, map[podKey]*runtimeapi.PodSandbox{}
	for _, s := range ready {
		key := keyOf(s.GetLabels())
		pod, found := known[key]
		ended := !found || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if key.uid == "" || ended && !runs[s.GetId()] { // without a UID, it isn't the kubelet's
			continue
		}
		of := sandbox{podKey: key, labels: s.GetLabels(), deleted: !found} // the kubelet copies the pod's labels
		if found {
			of.labels = pod.Labels
		}
		used[s.GetId()] = of
		key.uid = ""
		if last := newest[key]; last == nil || last.GetCreatedAt() < s.GetCreatedAt() {
			newest[key] = s
		}
	}
	for id, of := range used {
		of.superseded = newest[podKey{of.namespace, of.name, ""}].GetId() != id
		used[id] = of
	}
	return used
}

// byKey returns the pods by the keys of their sandboxes.
func byKey(pods []corev1.Pod) map[podKey]*corev1.Pod {
	found := make(map[podKey]*corev1.Pod, len(pods))
	for i := range pods {
		uid := string(pods[i].UID)
		// A static pod has a UID from the kubelet, and its mirror pod another one.
		if static, ok := pods[i].Annotations[corev1.MirrorPodAnnotationKey]; ok {
			uid = static
		}
		found[podKey{pods[i].Namespace, pods[i].Name, uid}] = &pods[i]
	}
	return found
}
