// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/hints"
)

// CacheOptions keep in memory only what concerns this node, so that it doesn't
// grow with the cluster: the API server selects. Namespace is the one that the agent
// runs in; of its ConfigMaps only the operator's hints are kept.
func CacheOptions(nodeName, namespace string) cache.Options {
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, nodeName), Transform: trimNode},
			&corev1.Pod{}:       {Field: fields.OneTermEqualSelector("spec.nodeName", nodeName), Transform: trimPod},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, hints.ConfigMapName)},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
	}
}

// trimNode keeps of a node what the agent reads.
func trimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations, n.Spec = nil, nil, corev1.NodeSpec{}
		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses}
	}
	return o, nil
}

// trimPod keeps of a pod what the agent reads.
func trimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields, p.Annotations, p.OwnerReferences = nil, nil, nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
		p.Status = corev1.PodStatus{
			Phase:                      p.Status.Phase,
			InitContainerStatuses:      p.Status.InitContainerStatuses,
			ContainerStatuses:          p.Status.ContainerStatuses,
			EphemeralContainerStatuses: p.Status.EphemeralContainerStatuses,
		}
	}
	return o, nil
}
