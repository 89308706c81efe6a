// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pods gets the names of the node's pods and containers from the container
// runtime.
package pods

import (
	"context"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/internal/cri"
)

// criDeadline bounds both calls together.
const criDeadline = 5 * time.Second

// Name identifies a container of a pod. Container is empty for the pod's sandbox.
type Name struct{ Namespace, Pod, Container string }

// Names contains the names on a node.
type Names struct {
	// ByContainer is by the runtime's ids of containers and sandboxes. ByPod is by the
	// UIDs of pods.
	ByContainer, ByPod map[string]Name
}

// List returns the names of all containers and sandboxes of the node's container runtime. run is the path where the
// host's /run is mounted.
func List(ctx context.Context, run string) (Names, error) {
	conn, socket, err := cri.Dial(run)
	if err != nil {
		return Names{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, criDeadline)
	defer cancel()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	names := Names{map[string]Name{}, map[string]Name{}}
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return Names{}, fmt.Errorf("list pods at %s: %w", socket, err)
	}
	for _, sandbox := range sandboxes.GetItems() {
		name := nameOf(sandbox.GetLabels())
		names.ByContainer[sandbox.GetId()] = name
		names.ByPod[sandbox.GetLabels()[cri.PodUIDLabel]] = name
	}
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return Names{}, fmt.Errorf("list containers at %s: %w", socket, err)
	}
	for _, container := range containers.GetContainers() {
		names.ByContainer[container.GetId()] = nameOf(container.GetLabels())
	}
	return names, nil
}

func nameOf(labels map[string]string) Name {
	return Name{strings.Clone(labels[cri.PodNamespaceLabel]), strings.Clone(labels[cri.PodNameLabel]), strings.Clone(labels[cri.ContainerNameLabel])}
}
