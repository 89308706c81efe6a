// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/bpfman/bpfman-operator/internal/problem"
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
	sandboxes  map[string]network
}

// details contains the fields that CRI only has in a runtime-specific format.
type details struct {
	pid   int    // 0 if it had ended at the time of the call
	netns string // of the pod, as a path of the host; "" for the host's
}

// network contains what a sandbox has of the node's namespaces, and its network namespace. They come from the runtime: a pod
// that a user created may not be the one that the sandbox was created for.
type network struct {
	hostNetwork, hostPID bool
	// netns is the path of its network namespace on the host, or "" if the runtime doesn't say it.
	netns string
}

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
	return &Runtime{dial: dial, lane: make(chan struct{}, 1), known: known{map[string]details{}, map[string]network{}}}
}

// Containers lists the containers of the node, and for each sandbox that is ready an entry without a name, ID, and PID: a pod
// has its network before it has a container. Pods contains the pods that the API server has for it. The
// result includes containers that have ended, while the pod's sandbox exists, because the sandbox has the
// pod's network. It also includes those of pods that the API server doesn't have, or regards as ended,
// if one of their containers is running: a pod can be deleted by force while its processes run on.
//
// A container or sandbox whose status is unknown has an Err. The next call only requests what is still unknown.
func (r *Runtime) Containers(ctx context.Context, pods []corev1.Pod) ([]program.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, criDeadline)
	defer cancel()
	select {
	case r.lane <- struct{}{}:
		defer func() { <-r.lane }()
	case <-ctx.Done():
		return nil, problem.Errorf(problem.ContainerRuntimeFails, "list containers: the container runtime hasn't answered earlier requests: %w", ctx.Err())
	}
	if err := r.connect(); err != nil {
		return nil, err
	}
	containers, sandboxes, err := r.list(ctx)
	if err != nil {
		r.disconnect() // another runtime may have replaced it
		return nil, problem.Errorf(problem.ContainerRuntimeFails, "list containers at %s: %w", r.socket, err)
	}
	used := inUse(containers, sandboxes, pods)
	r.known.forget(containers, sandboxes)
	out, networks := r.sandboxes(ctx, sandboxes, used)
	for _, c := range containers {
		s, ok := used[c.GetPodSandboxId()]
		if !ok || c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		found := s.container(c)
		if err := r.describe(ctx, &found, c.GetState(), networks[found.Sandbox]); status.Code(err) == codes.NotFound {
			continue // it was removed after the list
		} else if err != nil {
			found.Err = problem.Errorf(problem.ContainerRuntimeFails, "get the status of container %s of pod %s/%s: %w", found.Name, found.Namespace, found.Pod, err)
		}
		out = append(out, found)
	}
	return out, nil
}

// sandboxes returns the entries of sandboxes, and the networks of these and of the others that are in use, by ID.
func (r *Runtime) sandboxes(ctx context.Context, ready []*runtimeapi.PodSandbox, used map[string]sandbox) ([]program.Container, map[string]answer) {
	var out []program.Container
	networks := make(map[string]answer, len(used))
	for _, s := range ready {
		of, ok := used[s.GetId()]
		if !ok {
			continue
		}
		is, err := r.network(ctx, s.GetId())
		networks[s.GetId()] = answer{is, err}
		if status.Code(err) == codes.NotFound || err == nil && !is.hostNetwork && is.netns == "" {
			continue // it was removed after the list, or its first container tells the network
		}
		found := of.entry(s.GetId())
		found.HostNetwork, found.HostPID, found.NetNS = is.hostNetwork, is.hostPID, is.netns
		if err != nil {
			found.Err = problem.Errorf(problem.ContainerRuntimeFails, "get the status of the sandbox of pod %s/%s: %w", found.Namespace, found.Pod, err)
		}
		out = append(out, found)
	}
	return out, networks
}

// answer is what the runtime says about a sandbox.
type answer struct {
	network

	err error
}

// describe sets the fields of a container that the lists don't have.
func (r *Runtime) describe(ctx context.Context, c *program.Container, state runtimeapi.ContainerState, in answer) (err error) {
	of, ok := r.known.containers[c.ID]
	if !ok {
		if of, err = r.details(ctx, c.ID); err != nil {
			return err
		}
		r.known.containers[c.ID] = of
	}
	if in.err != nil {
		return in.err
	}
	c.HostNetwork, c.HostPID, c.NetNS = in.hostNetwork, in.hostPID, cmp.Or(in.netns, of.netns)
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
	maps.DeleteFunc(k.sandboxes, func(id string, _ network) bool { return !listed[id] })
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

// verbose contains the fields of a verbose status that containerd and CRI-O have under the same names.
type verbose struct {
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

// netns returns the path of the network namespace in the runtime specification, or "".
func (v verbose) netns() string {
	for _, namespace := range v.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			return namespace.Path
		}
	}
	return ""
}

// details gets the
// PID of the container's first process, and the runtime specification, which
// contains the path of the network namespace of the pod's sandbox.
func (r *Runtime) details(ctx context.Context, id string) (details, error) {
	response, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return details{}, err //nolint:wrapcheck // the caller adds context
	}
	var info verbose
	if err := json.Unmarshal([]byte(response.GetInfo()["info"]), &info); err != nil {
		return details{}, err
	}
	of := details{netns: info.netns()}
	if response.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return of, nil
	}
	if of.pid = info.PID; of.pid <= 0 {
		return details{}, problem.Errorf(problem.ContainerRuntimeFails, "the status has no process ID")
	}
	return of, nil
}

// network gets which namespaces of the node a sandbox uses, and its network namespace.
func (r *Runtime) network(ctx context.Context, id string) (network, error) {
	if is, ok := r.known.sandboxes[id]; ok {
		return is, nil
	}
	response, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return network{}, err //nolint:wrapcheck // the caller adds context
	}
	options := response.GetStatus().GetLinux().GetNamespaces().GetOptions()
	if options == nil {
		return network{}, problem.Errorf(problem.ContainerRuntimeFails, "the container runtime doesn't report which namespaces the pod uses")
	}
	is := network{
		hostNetwork: options.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		hostPID:     options.GetPid() == runtimeapi.NamespaceMode_NODE,
	}
	if !is.hostNetwork {
		is.netns = sandboxNetns(response.GetInfo()["info"])
	}
	r.known.sandboxes[id] = is
	return is, nil
}

// sandboxNetns returns the path of a sandbox's network namespace, or "" if the runtime's information doesn't have it. It is
// the same path as in the runtime specification of the sandbox's containers: in containerd, it contains the PID of the
// sandbox's process. In CRI-O, sandboxes have no process, and it is a file.
func sandboxNetns(info string) string {
	var of verbose
	if err := json.Unmarshal([]byte(info), &of); err != nil {
		return "" // its containers tell the path
	}
	if of.PID > 0 {
		return netnsOf(of.PID)
	}
	return of.netns()
}

// netnsOf returns the path of a process's network namespace on the host.
func netnsOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }
