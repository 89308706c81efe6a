// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/internal/cri"
)

// Runtime is the container runtime of a node, with the pods that run there.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	// proc is the node's /proc, where the agent reads the interfaces of pods.
	proc string

	mu    sync.Mutex
	pid   int
	pods  map[types.UID]*sandbox
	kept  map[types.UID]kept // by the kubelet
	hangs chan struct{}      // closed when it doesn't hang anymore; nil if it doesn't
	takes time.Duration      // each call
}

// sandbox is a pod as the runtime has it.
type sandbox struct {
	id         string
	pid        int
	pod        *corev1.Pod
	created    time.Time
	containers map[string]container
}

type container struct {
	id  string
	pid int
}

func newRuntime(proc string) *Runtime {
	return &Runtime{proc: proc, pid: 1000, pods: map[types.UID]*sandbox{}, kept: map[types.UID]kept{}}
}

// Hang makes calls last until their deadlines, until Resume.
func (r *Runtime) Hang() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs == nil {
		r.hangs = make(chan struct{})
	}
}

// Resume ends Hang.
func (r *Runtime) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs != nil {
		close(r.hangs)
		r.hangs = nil
	}
}

// SetTime sets the time that each call takes.
func (r *Runtime) SetTime(takes time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes = takes
}

// kept is a pod that the kubelet works on until stop is called.
type kept struct {
	pod  *corev1.Pod
	stop context.CancelCauseFunc
}

// errPowerOff is why a kubelet stops its work on a pod, without cleaning up.
var errPowerOff = errors.New("the node was switched off")

// keep remembers what the kubelet works on.
func (r *Runtime) keep(pod *corev1.Pod, stop context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[pod.UID] = kept{pod, stop}
}

// powerOff ends all pods, and returns those that the kubelet has.
func (r *Runtime) powerOff() (pods []*corev1.Pod) {
	r.Resume()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(r.kept)) {
		r.kept[uid].stop(errPowerOff)
		pods = append(pods, r.kept[uid].pod)
	}
	r.pods = map[types.UID]*sandbox{}
	return pods
}

// run runs a pod's containers.
func (r *Runtime) run(pod *corev1.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: "sandbox-" + string(pod.UID), pod: pod.DeepCopy(), created: time.Now(), containers: map[string]container{}}
	var err error
	if s.pid, err = r.process(s.id); err != nil {
		return err
	}
	for _, c := range pod.Spec.Containers {
		if err := r.start(s, c.Name); err != nil {
			return err
		}
	}
	r.pods[pod.UID] = s
	return nil
}

// start starts a container, which replaces the former one. The caller holds mu.
func (r *Runtime) start(s *sandbox, name string) error {
	id := fmt.Sprintf("container-%s-%s-%d", s.pod.UID, name, r.pid)
	pid, err := r.process(id)
	s.containers[name] = container{id, pid}
	return err
}

// process creates the files of a process in the cgroup of a container or sandbox, with the interfaces of a pod. The caller holds
// mu.
func (r *Runtime) process(id string) (pid int, err error) {
	r.pid++
	dir := filepath.Join(r.proc, fmt.Sprint(r.pid))
	if err := os.MkdirAll(filepath.Join(dir, "net"), 0o750); err != nil {
		return 0, fmt.Errorf("create a process: %w", err)
	}
	const interfaces = "Inter-|\n face |\n    lo: 0\n  eth0: 0\n"
	for name, content := range map[string]string{"net/dev": interfaces, "cgroup": "0::/" + id + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return 0, fmt.Errorf("create a process: %w", err)
		}
	}
	return r.pid, nil
}

// remove removes a pod.
func (r *Runtime) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.kept[uid]; ok {
		k.stop(nil)
		delete(r.kept, uid)
	}
	s := r.pods[uid]
	if s == nil {
		return
	}
	delete(r.pods, uid)
	pids := []int{s.pid}
	for _, c := range s.containers {
		pids = append(pids, c.pid)
	}
	for _, pid := range pids {
		_ = os.RemoveAll(filepath.Join(r.proc, fmt.Sprint(pid)))
	}
}

// restart restarts a container of a pod.
func (r *Runtime) restart(uid types.UID, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pods[uid]
	if s == nil {
		return fmt.Errorf("there is no pod %s", uid)
	}
	_ = os.RemoveAll(filepath.Join(r.proc, fmt.Sprint(s.containers[name].pid)))
	return r.start(s, name)
}

// sandboxes returns the pods, ordered by their UIDs.
func (r *Runtime) sandboxes() []*sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*sandbox
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		s := *r.pods[uid]
		s.containers = maps.Clone(s.containers)
		all = append(all, &s)
	}
	return all
}

func (s *sandbox) labels() map[string]string {
	labels := maps.Clone(s.pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cri.PodNamespaceLabel], labels[cri.PodNameLabel], labels[cri.PodUIDLabel] = s.pod.Namespace, s.pod.Name, string(s.pod.UID)
	return labels
}

// ListContainers implements [runtimeapi.RuntimeServiceServer].
func (r *Runtime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	out := &runtimeapi.ListContainersResponse{}
	for _, s := range r.sandboxes() {
		for _, name := range slices.Sorted(maps.Keys(s.containers)) {
			labels := s.labels()
			labels[cri.ContainerNameLabel] = name
			out.Containers = append(out.Containers, &runtimeapi.Container{
				Id: s.containers[name].id, PodSandboxId: s.id, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: labels,
			})
		}
	}
	return out, nil
}

// ListPodSandbox implements [runtimeapi.RuntimeServiceServer].
func (r *Runtime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes() {
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: s.id, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: s.created.UnixNano(), Labels: s.labels(),
		})
	}
	return out, nil
}

// PodSandboxStatus implements [runtimeapi.RuntimeServiceServer].
func (r *Runtime) PodSandboxStatus(_ context.Context, in *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	for _, s := range r.sandboxes() {
		if s.id != in.GetPodSandboxId() {
			continue
		}
		network := runtimeapi.NamespaceMode_POD
		if s.pod.Spec.HostNetwork {
			network = runtimeapi.NamespaceMode_NODE
		}
		info := map[string]string{"info": fmt.Sprintf(`{"pid":%d}`, s.pid)}
		return &runtimeapi.PodSandboxStatusResponse{Info: info, Status: &runtimeapi.PodSandboxStatus{
			Id:    s.id,
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: network}}},
		}}, nil
	}
	return nil, status.Error(codes.NotFound, in.GetPodSandboxId())
}

// ContainerStatus implements [runtimeapi.RuntimeServiceServer].
func (r *Runtime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	for _, s := range r.sandboxes() {
		for _, c := range s.containers {
			if c.id != in.GetContainerId() {
				continue
			}
			network := ""
			if !s.pod.Spec.HostNetwork {
				network = fmt.Sprintf(`{"type":"network","path":"/proc/%d/ns/net"}`, s.pid)
			}
			return &runtimeapi.ContainerStatusResponse{
				Status: &runtimeapi.ContainerStatus{Id: c.id, State: runtimeapi.ContainerState_CONTAINER_RUNNING},
				Info:   map[string]string{"info": fmt.Sprintf(`{"pid":%d,"runtimeSpec":{"linux":{"namespaces":[%s]}}}`, c.pid, network)},
			}, nil
		}
	}
	return nil, status.Error(codes.NotFound, in.GetContainerId())
}

// runtimeConn is a connection to a container runtime.
type runtimeConn struct {
	unary

	runtime *Runtime
}

// Invoke implements [grpc.ClientConnInterface].
func (c runtimeConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	c.runtime.mu.Lock()
	hangs, takes := c.runtime.hangs, c.runtime.takes
	c.runtime.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	in, out := args.(proto.Message), reply.(proto.Message) //nolint:errcheck,forcetypeassert // a client's calls have them
	response, err := service{&runtimeapi.RuntimeService_ServiceDesc, c.runtime}.call(ctx, method, in)
	if err == nil {
		proto.Merge(out, response)
	}
	return err
}

func (r *Runtime) dial() (node.Connection, string, error) {
	return runtimeConn{runtime: r}, "/run/containerd/containerd.sock", nil
}
