// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

// CacheByObject limits the manager's cache to what the status needs, because there is a Pod and a
// Node for each node. Reports aren't in this cache: see [reports.Store].
func CacheByObject(scheme *runtime.Scheme, namespace string, agentLabels map[string]string) map[client.Object]cache.ByObject {
	objects := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: trimmed(trimNode)},
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Label:      labels.SelectorFromSet(agentLabels),
			Transform:  trimmed(trimPod),
		},
	}
	for _, kind := range v1alpha1.UserKindsOf(scheme) {
		objects[kind.New()] = cache.ByObject{Transform: trimmed(trimUserObject)}
	}
	return objects
}

// trimmed returns a transform that removes the fields that no controller needs, and those that trim
// removes.
func trimmed[O any](trim func(O)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		// Tombstones stay unchanged.
		if o, ok := object.(O); ok {
			trim(o)
		}
		if o, ok := object.(metav1.Object); ok {
			o.SetManagedFields(nil)
			kinds.TrimAnnotations(o, v1alpha1.AnnotationRolloutPaused, v1alpha1.AnnotationRolloutResumed, rollout.Mark)
		}
		return object, nil
	}
}

func trimNode(node *corev1.Node) {
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints}
	node.Status = corev1.NodeStatus{Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
}

// oursOnly is shared by all pods except for those of upstream's DaemonSet.
var oursOnly = map[string]string{takeover.PartOfLabel: ""}

func trimPod(pod *corev1.Pod) {
	if _, ours := pod.Labels[takeover.PartOfLabel]; ours {
		pod.Labels = oursOnly
	} else {
		pod.Labels = nil
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Conditions:            slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady }),
		InitContainerStatuses: trimContainers(pod.Status.InitContainerStatuses),
		ContainerStatuses:     trimContainers(pod.Status.ContainerStatuses),
	}
}

// trimContainers keeps what shows whether a container fails, and why, and which image it runs.
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
	rollout.MarkObject(object)
	common := object.GetAppCommon()
	common.GlobalData, common.Globals = nil, nil
	object.SetAppCommon(common)
}
