// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/cri"
)

// criDeadline is the deadline of one list of containers, with the requests that follow from it.
const criDeadline = 10 * time.Second

// Runtime lists the containers of the node's container runtime, with CRI.
type Runtime struct {
	dial Dial

	// lane has room for one caller. It guards the other fields.
	lane   chan struct{}
	socket string
	conn   Connection
	client runtimeapi.RuntimeServiceClient
	known  known
}

// known contains what the runtime has reported about containers and sandboxes, by their IDs. It doesn't
// change while they exist.
type known struct {
	containers map[string]details
	sandboxes  map[string]modes
}

// details contains the fields that CRI only has in a runtime-specific format.
type details struct {
	pid   int    // 0 if it had ended at the time of the call
	netns string // of the pod, as a path of the host; "" for the host's
}

// modes contains which namespaces of the node a sandbox uses. They come from the runtime: a pod that a
// user created may not be the one that the sandbox was created for.
type modes struct{ hostNetwork, hostPID bool }

// Connection is a connection to a container runtime.
type Connection interface {
	grpc.ClientConnInterface
	io.Closer
}

// Dial returns a connection to the node's container runtime, and its socket for messages.
type Dial func() (conn Connection, socket string, err error)

// DialBelow finds the runtime's socket below run, which is the path of the host's /run, or of the part of it that
// [ShareRuntime] mounts.
func DialBelow(run string) Dial {
	return func() (Connection, string, error) { return cri.Dial(run) }
}

// NewRuntime returns a Runtime that connects when it is first asked.
func NewRuntime(dial Dial) *Runtime {
	return &Runtime{dial: dial, lane: make(chan struct{}, 1), known: known{map[string]details{}, map[string]modes{}}}
}

// Containers lists the containers of the node. Pods contains the pods that the API server has for it. The
// result includes containers that have ended, while the pod's sandbox exists, because the sandbox has the
// pod's network. It also includes those of pods that the API server doesn't have, or regards as ended,
// if one of their containers is running: a pod can be deleted by force while its processes run on.
//
// A container whose status is unknown has an Err. The next call only requests what is still unknown.
func (r *Runtime) Containers(ctx context.Context, pods []corev1.Pod) ([]program.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, criDeadline)
	defer cancel()
	select {
	case r.lane <- struct{}{}:
		defer func() { <-r.lane }()
	case <-ctx.Done():
		return nil, fmt.Errorf("list containers: the container runtime hasn't answered earlier requests: %w", ctx.Err())
	}
	if err := r.connect(); err != nil {
		return nil, err
	}
	containers, sandboxes, err := r.list(ctx)
	if err != nil {
		r.disconnect() // another runtime may have replaced it
		return nil, fmt.Errorf("list containers at %s: %w", r.socket, err)
	}
	used := inUse(containers, sandboxes, pods)
	r.known.forget(containers, sandboxes)
	var out []program.Container
	for _, c := range containers {
		s, ok := used[c.GetPodSandboxId()]
		if !ok || c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		found := s.container(c)
		if err := r.describe(ctx, &found, c.GetState()); status.Code(err) == codes.NotFound {
			continue // it was removed after the list
		} else if err != nil {
			found.Err = fmt.Errorf("get the status of container %s of pod %s/%s: %w", found.Name, found.Namespace, found.Pod, err)
		}
		out = append(out, found)
	}
	return out, nil
}

// describe sets the fields of a container that the lists don't have.
func (r *Runtime) describe(ctx context.Context, c *program.Container, state runtimeapi.ContainerState) (err error) {
	of, ok := r.known.containers[c.ID]
	if !ok {
		if of, err = r.details(ctx, c.ID); err != nil {
			return err
		}
		r.known.containers[c.ID] = of
	}
	uses, ok := r.known.sandboxes[c.Sandbox]
	if !ok {
		if uses, err = r.modes(ctx, c.Sandbox); err != nil {
			return err
		}
		r.known.sandboxes[c.Sandbox] = uses
	}
	c.HostNetwork, c.HostPID, c.NetNS = uses.hostNetwork, uses.hostPID, of.netns
	if state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.PID = of.pid
	}
	return nil
}

// forget removes what isn't listed anymore.
func (k known) forget(containers []*runtimeapi.Container, sandboxes []*runtimeapi.PodSandbox) {
	listed := make(map[string]bool, len(containers)+len(sandboxes))
	for _, c := range containers {
		listed[c.GetId()] = true
	}
	for _, s := range sandboxes {
		listed[s.GetId()] = true
	}
	maps.DeleteFunc(k.containers, func(id string, _ details) bool { return !listed[id] })
	maps.DeleteFunc(k.sandboxes, func(id string, _ modes) bool { return !listed[id] })
}

// list lists all containers, and the sandboxes that are ready.
func (r *Runtime) list(ctx context.Context) ([]*runtimeapi.Container, []*runtimeapi.PodSandbox, error) {
	all, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller adds context
	}
	// After the containers, so that no container of a ready sandbox is missed.
	ready, err := r.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	return all.GetContainers(), ready.GetItems(), err
}

func (r *Runtime) connect() error {
	if r.conn != nil {
		return nil
	}
	conn, socket, err := r.dial()
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

// modes gets which namespaces of the node a sandbox uses.
func (r *Runtime) modes(ctx context.Context, id string) (modes, error) {
	response, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return modes{}, err //nolint:wrapcheck // the caller adds context
	}
	options := response.GetStatus().GetLinux().GetNamespaces().GetOptions()
	if options == nil {
		return modes{}, errors.New("the container runtime doesn't report which namespaces the pod uses")
	}
	return modes{
		hostNetwork: options.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		hostPID:     options.GetPid() == runtimeapi.NamespaceMode_NODE,
	}, nil
}
