// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/cri"
)

// criDeadline is the deadline of one call of the container runtime.
const criDeadline = 10 * time.Second

// Runtime lists the containers of the node's container runtime, with CRI.
type Runtime struct {
	// Run is the path of the host's /run, or of the part of it that [ShareRuntime]
	// mounts.
	Run string

	mu     sync.Mutex
	socket string
	conn   *grpc.ClientConn
	client runtimeapi.RuntimeServiceClient
	known  map[string]details // by container ID; they don't change
}

// details contains the fields that CRI only has in a runtime-specific format.
type details struct {
	pid   int    // 0 if it had ended at the time of the call
	netns string // of the pod, as a path of the host; "" for the host's
}

// Containers lists the containers of the pods. It includes containers that have
// ended, while the pod's sandbox exists, because the sandbox has the pod's
// network.
func (r *Runtime) Containers(ctx context.Context, pods []corev1.Pod) ([]program.Container, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.connect(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, criDeadline)
	defer cancel()
	containers, sandboxes, err := r.list(ctx)
	if err != nil {
		r.disconnect() // another runtime may have replaced it
		return nil, fmt.Errorf("list containers at %s: %w", r.socket, err)
	}

	living := living(pods)
	known := map[string]details{}
	var out []program.Container
	for _, c := range containers {
		of, isKnown := r.known[c.GetId()]
		if isKnown {
			known[c.GetId()] = of
		}
		labels := c.GetLabels()
		pod, ok := living[podKey{labels[cri.PodNamespaceLabel], labels[cri.PodNameLabel], labels[cri.PodUIDLabel]}]
		if !ok || !sandboxes[c.GetPodSandboxId()] || c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		if !isKnown {
			if of, err = r.details(ctx, c.GetId()); status.Code(err) == codes.NotFound {
				continue // it was removed after the list
			} else if err != nil {
				return nil, fmt.Errorf("get the status of container %s: %w", c.GetId(), err)
			}
			known[c.GetId()] = of
		}
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			of.pid = 0
		}
		out = append(out, program.Container{
			Namespace:   pod.Namespace,
			Pod:         pod.Name,
			PodUID:      string(pod.UID),
			PodLabels:   pod.Labels,
			HostNetwork: pod.Spec.HostNetwork,
			HostPID:     pod.Spec.HostPID,
			Sandbox:     c.GetPodSandboxId(),
			NetNS:       of.netns,
			Name:        labels[cri.ContainerNameLabel],
			ID:          c.GetId(),
			PID:         of.pid,
		})
	}
	r.known = known
	return out, nil
}

// podKey identifies a pod as the labels of its containers do. The UID alone isn't
// enough: users can create a pod with [corev1.MirrorPodAnnotationKey] and the UID of
// another namespace's pod.
type podKey struct{ namespace, name, uid string }

// living returns the pods by the keys of their containers. It leaves out pods that
// have ended, because their sandboxes are about to be removed.
func living(pods []corev1.Pod) map[podKey]*corev1.Pod {
	byKey := make(map[podKey]*corev1.Pod, len(pods))
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		uid := string(pod.UID)
		// A static pod has a UID from the kubelet, and its mirror pod another one.
		if static, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
			uid = static
		}
		byKey[podKey{pod.Namespace, pod.Name, uid}] = pod
	}
	return byKey
}

// list lists all containers, and the sandboxes that are ready.
func (r *Runtime) list(ctx context.Context) (containers []*runtimeapi.Container, sandboxes map[string]bool, err error) {
	all, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller adds context
	}
	// After the containers, so that no container of a ready sandbox is missed.
	ready, err := r.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller adds context
	}
	sandboxes = make(map[string]bool, len(ready.GetItems()))
	for _, s := range ready.GetItems() {
		sandboxes[s.GetId()] = true
	}
	return all.GetContainers(), sandboxes, nil
}

func (r *Runtime) connect() error {
	if r.conn != nil {
		return nil
	}
	conn, socket, err := cri.Dial(r.Run)
	if err != nil {
		return err
	}
	r.socket, r.conn, r.client = socket, conn, runtimeapi.NewRuntimeServiceClient(conn)
	return nil
}

func (r *Runtime) disconnect() {
	_ = r.conn.Close() // fails only if it is already closed
	r.conn = nil
}

// details gets the fields that containerd and CRI-O have under the same names: the
// PID of the container's first process, and the runtime specification, which
// contains the path of the network namespace of the pod's sandbox.
func (r *Runtime) details(ctx context.Context, id string) (details, error) {
	response, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return details{}, err //nolint:wrapcheck // the caller adds context
	}
	var info struct {
		PID         int `json:"pid"`
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct {
					Type string `json:"type"`
					Path string `json:"path"`
				} `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(response.GetInfo()["info"]), &info); err != nil {
		return details{}, err
	}
	var of details
	for _, namespace := range info.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			of.netns = namespace.Path
		}
	}
	if response.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return of, nil
	}
	if of.pid = info.PID; of.pid <= 0 {
		return details{}, errors.New("the status has no process ID")
	}
	return of, nil
}
