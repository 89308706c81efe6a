// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/kinds"
)

// CacheByObject limits the manager's cache to what the status needs: there is one BpfProgram for each program on each
// node, one Pod and one Node for each node.
func CacheByObject(namespace string, agentLabels map[string]string) map[client.Object]cache.ByObject {
	objects := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: trimmed(trimNode)},
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Label:      labels.SelectorFromSet(agentLabels),
			Transform:  trimmed(trimPod),
		},
	}
	for _, kind := range v1alpha1.UserKinds {
		objects[kind.New()] = cache.ByObject{Transform: trimmed(trimUserObject)}
	}
	for _, kind := range v1alpha1.ProgramKinds {
		objects[kind.New()] = cache.ByObject{Transform: trimmed(trimProgram)}
	}
	return objects
}

// trimmed makes a transform that drops what no object here needs, and what trim drops besides.
func trimmed[O any](trim func(O)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		// Tombstones pass as they are.
		if o, ok := object.(O); ok {
			trim(o)
		}
		if o, ok := object.(metav1.Object); ok {
			o.SetManagedFields(nil)
			kinds.TrimAnnotations(o)
		}
		return object, nil
	}
}

func trimNode(node *corev1.Node) {
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints}
	node.Status = corev1.NodeStatus{}
}

func trimPod(pod *corev1.Pod) {
	pod.Labels = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		InitContainerStatuses: trimContainers(pod.Status.InitContainerStatuses),
		ContainerStatuses:     trimContainers(pod.Status.ContainerStatuses),
	}
}

// trimContainers keeps what tells that a container fails, and why, and which image it runs.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, len(statuses))
	for i, s := range statuses {
		trimmed[i] = corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, ImageID: s.ImageID, Ready: s.Ready, RestartCount: s.RestartCount, State: s.State, LastTerminationState: s.LastTerminationState,
		}
	}
	return trimmed
}

func trimUserObject(object v1alpha1.UserObject) {
	object.GetAppCommon().GlobalData = nil
}

func trimProgram(program v1alpha1.ProgramObject) {
	*program.GetSpec() = v1alpha1.BpfProgramSpec{}
	status := program.GetStatus()
	*status = v1alpha1.BpfProgramStatus{
		Node: status.Node, OwnerGeneration: status.OwnerGeneration, Conditions: status.Conditions, Bytecode: trimBytecode(status.Bytecode),
	}
	for i := range status.Conditions {
		status.Conditions[i].Message = shorten.Middle(status.Conditions[i].Message, maxError)
	}
}

// trimBytecode keeps what policies say, which is counted. Many reports have the same names.
func trimBytecode(b *v1alpha1.BpfProgramBytecode) *v1alpha1.BpfProgramBytecode {
	if b == nil || len(b.Policies) == 0 {
		return nil
	}
	trimmed := &v1alpha1.BpfProgramBytecode{Policies: make([]v1alpha1.BpfProgramPolicy, len(b.Policies))}
	for i, p := range b.Policies {
		trimmed.Policies[i] = v1alpha1.BpfProgramPolicy{Name: unique.Make(p.Name).Value(), Verdict: unique.Make(p.Verdict).Value()}
	}
	return trimmed
}
