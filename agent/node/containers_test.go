// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// container is a container of the runtime. Its verbose status has containerd's format.
type container struct {
	// pod is its pod's name, by default podUID without "uid-".
	podUID, pod, name, id string
	pid                   int
	// ended is the state in the list. If set, state is the state in the status.
	ended bool
	state runtimeapi.ContainerState
	// noSandbox means that its sandbox no longer exists.
	noSandbox bool
	// info, if set, replaces containerd's info. err, if set, is the error of the status call.
	info string
	err  error
}

// fakeRuntime is a container runtime in memory.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu         sync.Mutex
	containers []container
	asked      []string
}

func (r *fakeRuntime) set(containers ...container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = containers
}

// statuses returns the containers whose status was requested since it was last called.
func (r *fakeRuntime) statuses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := strings.Join(r.asked, " ")
	r.asked = nil
	return asked
}

func (r *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		listed := &runtimeapi.Container{
			Id: c.id, State: runtimeapi.ContainerState_CONTAINER_RUNNING, PodSandboxId: "s-" + c.podUID,
			Labels: map[string]string{
				"io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": cmp.Or(c.pod, strings.TrimPrefix(c.podUID, "uid-")),
				"io.kubernetes.pod.uid": c.podUID, "io.kubernetes.container.name": c.name,
			},
		}
		if c.ended {
			listed.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		out.Containers = append(out.Containers, listed)
	}
	return out, nil
}

func (r *fakeRuntime) ListPodSandbox(_ context.Context, in *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if in.GetFilter().GetState() == nil || in.GetFilter().GetState().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, status.Error(codes.InvalidArgument, "those that are ready are to be asked for")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range r.containers {
		if !c.noSandbox {
			out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: "s-" + c.podUID})
		}
	}
	return out, nil
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, in.GetContainerId())
	for _, c := range r.containers {
		if c.id != in.GetContainerId() {
			continue
		}
		if c.err != nil {
			return nil, c.err
		}
		state, info := runtimeapi.ContainerState_CONTAINER_RUNNING, fmt.Sprintf(
			`{"sandboxID": "s", "pid": %d, "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/proc/9/ns/net"}]}}}`, c.pid)
		if c.ended {
			state = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
			state = c.state
		}
		if c.info != "" {
			info = c.info
		}
		out := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: state}}
		if in.GetVerbose() {
			out.Info = map[string]string{"info": info}
		}
		return out, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

// serve listens at a socket below run until stop is called, which removes the socket.
func (r *fakeRuntime) serve(t *testing.T, run, socket string) (stop func()) {
	t.Helper()
	path := filepath.Join(run, socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, r)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	stop = func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		served <- nil // so that a second stop doesn't block
	}
	t.Cleanup(stop)
	return stop
}

func pod(name, uid string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}}}
}

// found returns one word for each container.
func found(containers []program.Container) string {
	words := make([]string, 0, len(containers))
	for _, c := range containers {
		words = append(words, fmt.Sprintf("%s/%s/%s:%d", c.Namespace, c.Pod, c.Name, c.PID))
	}
	return strings.Join(words, " ")
}

func TestContainers(t *testing.T) {
	pods := []corev1.Pod{pod("a", "uid-a"), pod("b", "uid-b")}
	for name, c := range map[string]struct {
		containers []container
		want       string
		err        string
	}{
		"by the pod's UID": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", pid: 11}, {podUID: "uid-a", name: "side", id: "2", pid: 12}, {podUID: "uid-b", name: "app", id: "3", pid: 13}},
			want:       "ns/a/app:11 ns/a/side:12 ns/b/app:13",
		},
		"other pods'": {
			// An earlier pod with the same name, and a container that the kubelet didn't create.
			containers: []container{{podUID: "uid-a-before", pod: "a", name: "app", id: "1", pid: 11}, {id: "2", pid: 12}},
		},
		"none": {},
		"ended and gone since listed": {
			containers: []container{{podUID: "uid-a", name: "x", id: "1", err: status.Error(codes.NotFound, "no such container")}, {podUID: "uid-b", name: "app", id: "2", pid: 12}},
			want:       "ns/b/app:12",
		},
		"ended since listed": {
			containers: []container{{podUID: "uid-a", name: "x", id: "1", pid: 0, state: runtimeapi.ContainerState_CONTAINER_EXITED}, {podUID: "uid-b", name: "app", id: "2", pid: 12}},
			want:       "ns/a/x:0 ns/b/app:12",
		},
		"ended, in a sandbox that is there": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", ended: true}, {podUID: "uid-a", name: "app", id: "2", pid: 12}},
			want:       "ns/a/app:0 ns/a/app:12",
		},
		"of a sandbox before": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", ended: true, noSandbox: true}},
		},
		// If this container were regarded as ended, the program would be detached from a running
		// container.
		"status fails": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", err: status.Error(codes.Internal, "busy")}},
			err:        "status of container 1: rpc error: code = Internal desc = busy",
		},
		"no process ID": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", info: `{"sandboxID": "s"}`}},
			err:        "get the status of container 1: the status has no process ID",
		},
		"no details": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", info: `none`}},
			err:        "status of container 1: invalid character",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			server := &fakeRuntime{}
			server.set(c.containers...)
			server.serve(t, run, "containerd/containerd.sock")
			got, err := (&Runtime{Run: run}).Containers(t.Context(), pods)
			if found(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v, want %q, %s", found(got), err, c.want, c.err)
			}
		})
	}
}

// The kubelet runs a static pod under a UID that only an annotation of its mirror pod
// has. A user can write that annotation, so it must not give access to the pods of
// others.
func TestStaticPods(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	server.set(container{podUID: "5e1f", pod: "a", name: "app", id: "1", pid: 11})
	server.serve(t, run, "containerd/containerd.sock")
	mirror := func(namespace, name, uid string) corev1.Pod {
		p := pod(name, "uid-of-the-mirror-pod")
		p.Namespace, p.Annotations = namespace, map[string]string{corev1.MirrorPodAnnotationKey: uid}
		return p
	}
	for _, c := range []struct {
		pod  corev1.Pod
		want string
	}{
		{mirror("ns", "a", "5e1f"), "ns/a/app:11"},
		{mirror("ns", "a", "before"), ""},
		{mirror("ns", "b", "5e1f"), ""},
		{mirror("tenant", "a", "5e1f"), ""},
	} {
		if got, err := (&Runtime{Run: run}).Containers(t.Context(), []corev1.Pod{c.pod}); err != nil || found(got) != c.want {
			t.Errorf("%s/%s of %v: got %q, %v, want %q", c.pod.Namespace, c.pod.Name, c.pod.Annotations, found(got), err, c.want)
		}
	}
}

func TestContainerHasItsPodsFacts(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	server.set(container{podUID: "uid-a", name: "app", id: "1", pid: 11})
	server.serve(t, run, "crio/crio.sock")
	host := pod("a", "uid-a")
	host.Spec.HostNetwork = true
	got, err := (&Runtime{Run: run}).Containers(t.Context(), []corev1.Pod{host})
	want := program.Container{
		Namespace: "ns", Pod: "a", PodUID: "uid-a", PodLabels: map[string]string{"app": "a"}, HostNetwork: true,
		Sandbox: "s-uid-a", NetNS: "/proc/9/ns/net", Name: "app", ID: "1", PID: 11,
	}
	if err != nil || len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// The status of a container is expensive for the runtime. It is requested once.
func TestStatusIsAskedForOnce(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	a, b := container{podUID: "uid-a", name: "app", id: "1", pid: 11}, container{podUID: "uid-b", name: "app", id: "2", pid: 12}
	server.set(a, b)
	server.serve(t, run, "containerd/containerd.sock")
	r := &Runtime{Run: run}
	ended, restarted := a, container{podUID: "uid-a", name: "app", id: "3", pid: 13}
	ended.ended = true
	for _, step := range []struct {
		has  []container
		pods []corev1.Pod
		want string
		asks string
	}{
		{[]container{a, b}, []corev1.Pod{pod("a", "uid-a")}, "ns/a/app:11", "1"},
		{[]container{a, b}, []corev1.Pod{pod("b", "uid-b")}, "ns/b/app:12", "2"},
		{[]container{a, b}, []corev1.Pod{pod("a", "uid-a"), pod("b", "uid-b")}, "ns/a/app:11 ns/b/app:12", ""},
		{[]container{ended, b}, []corev1.Pod{pod("a", "uid-a")}, "ns/a/app:0", ""},
		{[]container{ended, restarted, b}, []corev1.Pod{pod("a", "uid-a")}, "ns/a/app:0 ns/a/app:13", "3"},
		{[]container{restarted, b}, []corev1.Pod{pod("a", "uid-a"), pod("b", "uid-b")}, "ns/a/app:13 ns/b/app:12", ""},
		{nil, []corev1.Pod{pod("a", "uid-a")}, "", ""},
	} {
		server.set(step.has...)
		got, err := r.Containers(t.Context(), step.pods)
		if asks := server.statuses(); err != nil || found(got) != step.want || asks != step.asks {
			t.Errorf("got %q, %v, asked %q, want %q, asked %q", found(got), err, asks, step.want, step.asks)
		}
	}
	if len(r.known) != 0 {
		t.Errorf("remembers %v of what is gone", r.known)
	}
}

// A pod that has ended has no containers, even if its sandbox still exists.
func TestPodsThatHaveEnded(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	server.set(container{podUID: "uid-a", name: "app", id: "1", ended: true})
	server.serve(t, run, "containerd/containerd.sock")
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		p := pod("a", "uid-a")
		p.Status.Phase = phase
		if got, err := (&Runtime{Run: run}).Containers(t.Context(), []corev1.Pod{p}); err != nil || len(got) != 0 {
			t.Errorf("%s: %q, %v", phase, found(got), err)
		}
	}
}

func TestRuntimeGoesAndReturns(t *testing.T) {
	run := t.TempDir()
	pods := []corev1.Pod{pod("a", "uid-a")}
	r := &Runtime{Run: run}
	if got, err := r.Containers(t.Context(), nil); len(got) != 0 || err != nil {
		t.Errorf("no pods: %v, %v", got, err)
	}
	if _, err := r.Containers(t.Context(), pods); err == nil || !strings.Contains(err.Error(), "no container runtime listens below "+run) {
		t.Errorf("no runtime: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(run, "containerd"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "containerd/containerd.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Containers(t.Context(), pods); err == nil || !strings.Contains(err.Error(), "no container runtime") {
		t.Errorf("a file that is no socket: %v", err)
	}
	if err := os.Remove(filepath.Join(run, "containerd/containerd.sock")); err != nil {
		t.Fatal(err)
	}

	server := &fakeRuntime{}
	server.set(container{podUID: "uid-a", name: "app", id: "1", pid: 11})
	// The runtime can restart, or be replaced by another one.
	for _, socket := range []string{"containerd/containerd.sock", "containerd/containerd.sock", "crio/crio.sock"} {
		stop := server.serve(t, run, socket)
		if got, err := r.Containers(t.Context(), pods); err != nil || found(got) != "ns/a/app:11" {
			t.Fatalf("at %s: %q, %v", socket, found(got), err)
		}
		stop()
		if _, err := r.Containers(t.Context(), pods); err == nil || !strings.Contains(err.Error(), socket) {
			t.Fatalf("without %s: %v", socket, err)
		}
		if r.conn != nil {
			t.Fatal("a connection that is of no use is kept")
		}
	}
}
