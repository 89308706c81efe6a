// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// criSockets are where container runtimes listen by default, below /run.
var criSockets = []string{"containerd/containerd.sock", "crio/crio.sock", "cri-dockerd.sock"}

// criDeadline is for one call of the runtime.
const criDeadline = 10 * time.Second

// maxList is the longest answer that is taken, which is the kubelet's limit.
const maxList = 16 << 20

// Labels that the kubelet gives to each container (k8s.io/kubelet's types).
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// Runtime asks the node's container runtime, over CRI, for containers. It talks
// the API itself, in three calls, because k8s.io/cri-client brings tracing and
// its own logging, which would be a good part of the agent's memory.
type Runtime struct {
	// Run is where the host's /run is seen.
	Run string

	mu     sync.Mutex
	socket string
	conn   *grpc.ClientConn
	client runtimeapi.RuntimeServiceClient
	pids   map[string]int // by container id; a container's PID doesn't change
}

// Containers lists the running containers of the pods.
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
	list, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		r.disconnect() // another runtime may have taken the first one's place
		return nil, fmt.Errorf("list containers at %s: %w", r.socket, err)
	}

	byUID := make(map[string]*corev1.Pod, len(pods))
	for i := range pods {
		byUID[string(pods[i].UID)] = &pods[i]
	}
	running := map[string]int{}
	var out []program.Container
	for _, c := range list.GetContainers() {
		if pid, ok := r.pids[c.GetId()]; ok {
			running[c.GetId()] = pid
		}
		pod, ok := byUID[c.GetLabels()[podUIDLabel]]
		if !ok {
			continue
		}
		pid, known := running[c.GetId()]
		if !known {
			if pid, err = r.pid(ctx, c.GetId()); err != nil {
				return nil, err
			}
			if pid == 0 {
				continue
			}
			running[c.GetId()] = pid
		}
		out = append(out, program.Container{
			Namespace:   pod.Namespace,
			Pod:         pod.Name,
			PodUID:      string(pod.UID),
			PodLabels:   pod.Labels,
			HostNetwork: pod.Spec.HostNetwork,
			Name:        c.GetLabels()[containerNameLabel],
			ID:          c.GetId(),
			PID:         pid,
		})
	}
	r.pids = running
	return out, nil
}

func (r *Runtime) connect() error {
	if r.conn != nil {
		return nil
	}
	for _, s := range criSockets {
		socket := filepath.Join(r.Run, s)
		if info, err := os.Stat(socket); err != nil || info.Mode()&os.ModeSocket == 0 {
			continue
		}
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)))
		if err != nil {
			return fmt.Errorf("dial container runtime at %s: %w", socket, err)
		}
		r.socket, r.conn, r.client = socket, conn, runtimeapi.NewRuntimeServiceClient(conn)
		return nil
	}
	return fmt.Errorf("no container runtime listens below %s at %s", r.Run, strings.Join(criSockets, ", "))
}

func (r *Runtime) disconnect() {
	_ = r.conn.Close() // fails only where it is closed already
	r.conn = nil
}

// pid asks for the PID of a container's first process, which CRI has only in
// the runtimes' own details: containerd and CRI-O both call it pid. It is 0 for
// a container that has ended since it was listed.
func (r *Runtime) pid(ctx context.Context, id string) (int, error) {
	response, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if status.Code(err) == codes.NotFound {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("status of container %s: %w", id, err)
	}
	if response.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, nil
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(response.GetInfo()["info"]), &info); err != nil {
		return 0, fmt.Errorf("status of container %s: %w", id, err)
	}
	if info.PID <= 0 {
		return 0, errors.New("status of container " + id + ": no pid in it")
	}
	return info.PID, nil
}
