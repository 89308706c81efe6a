// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cri connects to the container runtime of a node. Callers use its API directly:
// k8s.io/cri-client would add tracing and logging, which need a considerable part of the
// memory of the agent and the inspector.
package cri

import (
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Sockets are the default paths, relative to /run, of the sockets of container runtimes.
// Socket tries them in this order.
var Sockets = []string{"containerd/containerd.sock", "crio/crio.sock", "cri-dockerd.sock"}

// Socket returns the path of the socket where the node's container runtime serves CRI.
// run is the path under which the host's /run is mounted. It returns an error if no
// socket exists.
func Socket(run string) (string, error) {
	for _, s := range Sockets {
		socket := filepath.Join(run, s)
		if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			return socket, nil
		}
	}
	return "", problem.Errorf(problem.NoContainerRuntime, "no container runtime listens below %s at %s", run, strings.Join(Sockets, ", "))
}

// The labels that the kubelet sets on each container and sandbox
// (k8s.io/kubelet/pkg/types).
const (
	PodNamespaceLabel  = "io.kubernetes.pod.namespace"
	PodNameLabel       = "io.kubernetes.pod.name"
	PodUIDLabel        = "io.kubernetes.pod.uid"
	ContainerNameLabel = "io.kubernetes.container.name"
)

// maxResponse is the limit for responses, in bytes. The kubelet has the same limit.
const maxResponse = 16 << 20

// Dial returns a connection to the node's container runtime, and its socket. It connects
// at the first call.
func Dial(run string) (conn *grpc.ClientConn, socket string, err error) {
	if socket, err = Socket(run); err != nil {
		return nil, "", err
	}
	conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, "", problem.Errorf(problem.ContainerRuntimeFails, "dial container runtime at %s: %w", socket, err)
	}
	return conn, socket, nil
}
