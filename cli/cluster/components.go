// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultComponents is the namespace in which bpfman is installed, unless the user names another one.
const DefaultComponents = "bpfman"

// operatorPods are the labels of the operator's pods, however it was installed. In a namespace of several operators, as OLM
// can have it, others have the first of them as well.
var operatorPods = client.MatchingLabels{"control-plane": "controller-manager", "app.kubernetes.io/name": "bpfman-operator"}

// Components is what the namespace in which bpfman is installed shows about its components.
type Components struct {
	Namespace string
	// Found are the problems of the node components that the operator found, one on each line.
	Found string
	// Operators are the operator's pods. It is nil if they can't be read.
	Operators []corev1.Pod
}

// Components reads what is known about the components of the namespace in which bpfman is installed. What can be read is
// returned together with an error about the rest.
func (c *Cluster) Components(ctx context.Context, namespace string) (Components, error) {
	found := Components{Namespace: namespace}
	var config corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "bpfman-config"}, &config); err != nil {
		return found, err //nolint:wrapcheck // the API server names the ConfigMap
	}
	found.Found = config.Annotations["bpfman.io/problems"]
	pods, err := All[corev1.Pod](ctx, c, &corev1.PodList{}, client.InNamespace(namespace), operatorPods)
	if err != nil {
		return found, fmt.Errorf("pods of the operator: %w", err)
	}
	found.Operators = append([]corev1.Pod{}, pods...)
	return found, nil
}
