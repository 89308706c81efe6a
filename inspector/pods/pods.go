// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pods names the pods and containers of the node, as its container runtime
// knows them.
package pods

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/apis/cri"
)

// criDeadline is for both calls together.
const criDeadline = 5 * time.Second

// maxList is the longest answer that is taken, which is the kubelet's limit.
const maxList = 16 << 20

// Labels that the kubelet gives to each container and sandbox (k8s.io/kubelet's types).
const (
	podNamespaceLabel  = "io.kubernetes.pod.namespace"
	podNameLabel       = "io.kubernetes.pod.name"
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// Name is a container of a pod; of the pod's sandbox it has no Container.
type Name struct{ Namespace, Pod, Container string }

// Names are those of a node.
type Names struct {
	// ByContainer is by the runtime's ids of containers and sandboxes, ByPod by the
	// UIDs of pods.
	ByContainer, ByPod map[string]Name
}

// Runtime is the node's container runtime. It talks the API itself, in two calls,
// because k8s.io/cri-client brings tracing and its own logging, which would be a good
// part of the inspector's memory.
type Runtime struct {
	// Run is where the host's /run is seen.
	Run string
}

// List asks for all containers and sandboxes that the runtime has.
func (r Runtime) List(ctx context.Context) (Names, error) {
	socket, err := cri.Socket(r.Run)
	if err != nil {
		return Names{}, err //nolint:wrapcheck // it says where it looked
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)))
	if err != nil {
		return Names{}, fmt.Errorf("dial container runtime at %s: %w", socket, err)
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
		names.ByPod[sandbox.GetLabels()[podUIDLabel]] = name
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
	return Name{strings.Clone(labels[podNamespaceLabel]), strings.Clone(labels[podNameLabel]), strings.Clone(labels[containerNameLabel])}
}
