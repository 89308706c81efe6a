// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	// noSandbox means that its sandbox no longer exists. noContainer means that there is only the sandbox. sandboxInfo is the
	// information in its verbose status, and sandboxErr the error of the call.
	noSandbox, noContainer bool
	sandboxInfo            string
	sandboxErr             error
	// info, if set, replaces containerd's info. err, if set, is the error of the status call.
	info string
	err  error
	// namespaces are those of its sandbox, by default the pod's own. noNamespaces means that the
	// runtime doesn't report them.
	namespaces   namespaces
	noNamespaces bool
	// labels are the pod's, as the kubelet copies them to the sandbox. created is when the sandbox was created.
	labels  map[string]string
	created int64
}

// namespaces are those of a sandbox.
type namespaces struct{ network, pid runtimeapi.NamespaceMode }

func (c container) sandboxLabels() map[string]string {
	labels := map[string]string{
		"io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": cmp.Or(c.pod, strings.TrimPrefix(c.podUID, "uid-")),
		"io.kubernetes.pod.uid": c.podUID,
	}
	maps.Copy(labels, c.labels)
	return labels
}

// fakeRuntime is a container runtime in memory.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu         sync.Mutex
	containers []container
	asked      []string
	left       int // statuses until limit is called
	limit      func()
}

// after calls limit when n more statuses of containers have been requested.
func (r *fakeRuntime) after(n int, limit func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.limit = n, limit
}

func (r *fakeRuntime) set(containers ...container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = containers
}

// statuses returns the containers and sandboxes whose status was requested since it was last called.
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
		if c.noContainer {
			continue
		}
		listed := &runtimeapi.Container{
			Id: c.id, State: runtimeapi.ContainerState_CONTAINER_RUNNING, PodSandboxId: "s-" + c.podUID,
			Labels: c.sandboxLabels(),
		}
		listed.Labels["io.kubernetes.container.name"] = c.name
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
			out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: "s-" + c.podUID, Labels: c.sandboxLabels(), CreatedAt: c.created})
		}
	}
	return out, nil
}

func (r *fakeRuntime) PodSandboxStatus(_ context.Context, in *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, in.GetPodSandboxId())
	for _, c := range r.containers {
		if "s-"+c.podUID != in.GetPodSandboxId() {
			continue
		}
		if c.sandboxErr != nil {
			return nil, c.sandboxErr
		}
		out := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{}}
		if in.GetVerbose() && c.sandboxInfo != "" {
			out.Info = map[string]string{"info": c.sandboxInfo}
		}
		if !c.noNamespaces {
			options := &runtimeapi.NamespaceOption{Network: c.namespaces.network, Pid: c.namespaces.pid}
			out.Status.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}}
		}
		return out, nil
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, in.GetContainerId())
	if r.left--; r.limit != nil && r.left < 0 {
		r.limit()
		return nil, status.Error(codes.DeadlineExceeded, "late")
	}
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
	return r.serveAs(t, run, socket, r)
}

// serveAs is serve for a runtime with more than a fakeRuntime has.
func (*fakeRuntime) serveAs(t *testing.T, run, socket string, as runtimeapi.RuntimeServiceServer) (stop func()) {
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
	runtimeapi.RegisterRuntimeServiceServer(g, as)
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
		word := fmt.Sprintf("%s/%s/%s:%d", c.Namespace, c.Pod, c.Name, c.PID)
		if c.Deleted {
			word += ":deleted"
		}
		if c.Superseded {
			word += ":superseded"
		}
		if c.Err != nil {
			word += ":unknown"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// errorsOf returns the errors of containers, one on each line.
func errorsOf(containers []program.Container) string {
	var errs []error
	for _, c := range containers {
		errs = append(errs, c.Err)
	}
	return fmt.Sprint(errors.Join(errs...))
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
		"an earlier pod with the same name": {
			containers: []container{{podUID: "uid-a-before", pod: "a", name: "app", id: "1", ended: true}},
		},
		"containers that the kubelet didn't create": {
			containers: []container{{id: "2", pid: 12}},
		},
		// Its processes run on after the pod was deleted by force.
		"deleted": {
			containers: []container{
				{podUID: "uid-gone", name: "app", id: "1", pid: 11},
				{podUID: "uid-gone", name: "init", id: "2", ended: true},
			},
			want: "ns/gone/app:11:deleted ns/gone/init:0:deleted",
		},
		"deleted, with a new pod of its name": {
			containers: []container{
				{podUID: "uid-a-before", pod: "a", name: "app", id: "1", pid: 11, created: 1},
				{podUID: "uid-a-first", pod: "a", name: "app", id: "2", pid: 12, created: 0},
				{podUID: "uid-a", name: "app", id: "3", pid: 13, created: 2},
			},
			want: "ns/a/app:11:deleted:superseded ns/a/app:12:deleted:superseded ns/a/app:13",
		},
		"deleted, and its containers have ended": {
			containers: []container{{podUID: "uid-gone", name: "app", id: "1", ended: true}},
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
		// If these containers were regarded as ended, programs would be detached from running containers.
		"status fails": {
			containers: []container{
				{podUID: "uid-a", name: "app", id: "1", err: status.Error(codes.Internal, "busy")},
				{podUID: "uid-b", name: "app", id: "2", pid: 12},
			},
			want: "ns/a/app:0:unknown ns/b/app:12",
			err:  "get the status of container app of pod ns/a: rpc error: code = Internal desc = busy",
		},
		"no process ID": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", info: `{"sandboxID": "s"}`}},
			want:       "ns/a/app:0:unknown",
			err:        "get the status of container app of pod ns/a: the status has no process ID",
		},
		"no details": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", info: `none`}},
			want:       "ns/a/app:0:unknown",
			err:        "status of container app of pod ns/a: invalid character",
		},
		"no namespaces": {
			containers: []container{{podUID: "uid-a", name: "app", id: "1", pid: 11, noNamespaces: true}},
			want:       "ns/a/:0:unknown ns/a/app:0:unknown",
			err:        "status of container app of pod ns/a: the container runtime doesn't report which namespaces the pod uses",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			server := &fakeRuntime{}
			server.set(c.containers...)
			server.serve(t, run, "containerd/containerd.sock")
			got, err := NewRuntime(DialBelow(run)).Containers(t.Context(), pods)
			if err != nil || found(got) != c.want || !strings.Contains(errorsOf(got), cmp.Or(c.err, "<nil>")) {
				t.Errorf("got %q, %v, %s, want %q, %s", found(got), err, errorsOf(got), c.want, c.err)
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
		{mirror("ns", "a", "before"), "ns/a/app:11:deleted"},
		{mirror("ns", "b", "5e1f"), "ns/a/app:11:deleted"},
		{mirror("tenant", "a", "5e1f"), "ns/a/app:11:deleted"},
	} {
		if got, err := NewRuntime(DialBelow(run)).Containers(t.Context(), []corev1.Pod{c.pod}); err != nil || found(got) != c.want {
			t.Errorf("%s/%s of %v: got %q, %v, want %q", c.pod.Namespace, c.pod.Name, c.pod.Annotations, found(got), err, c.want)
		}
	}
}

// Facts about a container come from the runtime. A user can delete a pod with the host's network by force while
// its processes run on, and create a pod with the same name, other fields, and a mirror pod's annotation
// with the old UID.
func TestContainerHasItsSandboxesFacts(t *testing.T) {
	node, own := runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_POD
	for name, c := range map[string]struct {
		is   namespaces
		want program.Container
	}{
		"the node's":         {namespaces{node, node}, program.Container{HostNetwork: true, HostPID: true}},
		"the node's network": {namespaces{node, own}, program.Container{HostNetwork: true}},
		"the node's PIDs":    {namespaces{own, node}, program.Container{HostPID: true}},
		"its own":            {namespaces{own, runtimeapi.NamespaceMode_CONTAINER}, program.Container{}},
	} {
		for says, spec := range map[string]corev1.PodSpec{"the node's": {HostNetwork: true, HostPID: true}, "its own": {}} {
			t.Run(name+", and the pod says "+says, func(t *testing.T) {
				run := t.TempDir()
				server := &fakeRuntime{}
				server.set(container{podUID: "uid-before", pod: "a", name: "app", id: "1", pid: 11, namespaces: c.is})
				server.serve(t, run, "crio/crio.sock")
				mirror := pod("a", "uid-a")
				mirror.Spec, mirror.Annotations = spec, map[string]string{corev1.MirrorPodAnnotationKey: "uid-before"}
				got, err := NewRuntime(DialBelow(run)).Containers(t.Context(), []corev1.Pod{mirror})
				want := c.want
				want.Namespace, want.Pod, want.PodUID, want.PodLabels = "ns", "a", "uid-before", map[string]string{"app": "a"}
				want.Sandbox, want.NetNS, want.Name, want.ID, want.PID = "s-uid-before", "/proc/9/ns/net", "app", "1", 11
				got = slices.DeleteFunc(got, func(c program.Container) bool { return c.ID == "" })
				if err != nil || len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", want) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			})
		}
	}
}

// A pod has its network before its first container. The path of the network is the same as for its containers later on. A
// status that the runtime refuses is asked for again.
func TestSandboxWithoutContainers(t *testing.T) {
	const spec = `"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/x"}]}}}`
	for name, c := range map[string]struct {
		is   container
		want string
	}{
		"containerd":               {container{sandboxInfo: `{"pid": 9, ` + spec}, "ns/a/: /proc/9/ns/net false"},
		"CRI-O":                    {container{sandboxInfo: `{` + spec}, "ns/a/: /var/run/netns/x false"},
		"with the node's network":  {container{namespaces: namespaces{network: runtimeapi.NamespaceMode_NODE}}, "ns/a/:  true"},
		"a runtime without a path": {container{sandboxInfo: `{}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			server := &fakeRuntime{}
			server.serve(t, run, "crio/crio.sock")
			r := NewRuntime(DialBelow(run))
			words := func() (all []string) {
				got, err := r.Containers(t.Context(), []corev1.Pod{pod("a", "uid-a")})
				if err != nil {
					t.Fatal(err)
				}
				for _, of := range got {
					all = append(all, fmt.Sprintf("%s/%s/%s:%s %s %t", of.Namespace, of.Pod, of.Name, of.ID, of.NetNS, of.HostNetwork))
					if of.Err != nil {
						all = append(all, of.Err.Error())
					}
				}
				return all
			}
			is := c.is
			is.podUID, is.noContainer, is.sandboxErr = "uid-a", true, status.Error(codes.Unavailable, "busy")
			server.set(is)
			want := []string{"ns/a/:  false", "get the status of the sandbox of pod ns/a: rpc error: code = Unavailable desc = busy"}
			if got := words(); !slices.Equal(got, want) {
				t.Errorf("refused: %q, want %q", got, want)
			}
			is.sandboxErr = nil
			server.set(is)
			if got := words(); strings.Join(got, ", ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			is.noContainer, is.name, is.id, is.pid = false, "app", "1", 11
			server.set(is)
			if got := words(); c.want != "" && (len(got) != 2 || got[0] != c.want) || !strings.HasPrefix(got[len(got)-1], "ns/a/app:1 /") {
				t.Errorf("with a container: %q", got)
			}
		})
	}
}

// The labels of a deleted pod are those that the kubelet copied to its sandbox.
func TestLabelsOfDeletedPods(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	server.set(container{podUID: "uid-a", name: "app", id: "1", pid: 11, labels: map[string]string{"app": "before"}})
	server.serve(t, run, "crio/crio.sock")
	r := NewRuntime(DialBelow(run))
	for _, c := range []struct {
		pods []corev1.Pod
		want string
	}{{[]corev1.Pod{pod("a", "uid-a")}, "a"}, {nil, "before"}} {
		if got, err := r.Containers(t.Context(), c.pods); err != nil || len(got) != 1 || got[0].PodLabels["app"] != c.want {
			t.Errorf("%d pods: got %+v, %v, want the label %s", len(c.pods), got, err, c.want)
		}
	}
}

// A node can have so many containers that their statuses take longer than a call may.
func TestWhatIsUnknownIsCompletedByLaterCalls(t *testing.T) {
	const each = 3
	run := t.TempDir()
	server := &fakeRuntime{}
	var containers []container
	var pods []corev1.Pod
	for i := range 10 {
		uid := fmt.Sprintf("uid-%d", i)
		containers, pods = append(containers, container{podUID: uid, name: "app", id: uid, pid: 10 + i}), append(pods, pod(fmt.Sprint(i), uid))
	}
	server.set(containers...)
	server.serve(t, run, "containerd/containerd.sock")
	r := NewRuntime(DialBelow(run))
	for call, want := range []int{7, 4, 1, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		server.after(each, cancel)
		got, err := r.Containers(ctx, pods)
		unknown := strings.Count(found(got), ":unknown")
		if err != nil || len(got) != 10 || unknown != want {
			t.Errorf("call %d: %d unknown, want %d: %q, %v", call, unknown, want, found(got), err)
		}
		cancel()
	}
}

// A call doesn't wait for an earlier one beyond its own deadline.
func TestARuntimeThatHangs(t *testing.T) {
	r := NewRuntime(DialBelow(t.TempDir()))
	r.lane <- struct{}{} // another caller's
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Containers(ctx, nil); err == nil || !strings.Contains(err.Error(), "hasn't answered earlier requests") {
		t.Errorf("%v", err)
	}
}

// The status of a container is expensive for the runtime. It is requested once.
func TestStatusIsAskedForOnce(t *testing.T) {
	run := t.TempDir()
	server := &fakeRuntime{}
	a, b := container{podUID: "uid-a", name: "app", id: "1", pid: 11}, container{podUID: "uid-b", name: "app", id: "2", pid: 12}
	server.set(a, b)
	server.serve(t, run, "containerd/containerd.sock")
	r := NewRuntime(DialBelow(run))
	ended, restarted := a, container{podUID: "uid-a", name: "app", id: "3", pid: 13}
	ended.ended = true
	both := []corev1.Pod{pod("a", "uid-a"), pod("b", "uid-b")}
	for _, step := range []struct {
		has  []container
		pods []corev1.Pod
		want string
		asks string
	}{
		{[]container{a}, both, "ns/a/app:11", "s-uid-a 1"},
		{[]container{a, b}, both, "ns/a/app:11 ns/b/app:12", "s-uid-b 2"},
		{[]container{a, b}, both, "ns/a/app:11 ns/b/app:12", ""},
		{[]container{ended, b}, both, "ns/a/app:0 ns/b/app:12", ""},
		{[]container{ended, restarted, b}, both, "ns/a/app:0 ns/a/app:13 ns/b/app:12", "3"},
		{[]container{restarted, b}, both, "ns/a/app:13 ns/b/app:12", ""},
		{[]container{restarted, b}, both[:1], "ns/a/app:13 ns/b/app:12:deleted", ""},
		{nil, both[:1], "", ""},
	} {
		server.set(step.has...)
		got, err := r.Containers(t.Context(), step.pods)
		if asks := server.statuses(); err != nil || found(got) != step.want || asks != step.asks {
			t.Errorf("got %q, %v, asked %q, want %q, asked %q", found(got), err, asks, step.want, step.asks)
		}
	}
	if len(r.known.containers)+len(r.known.sandboxes) != 0 {
		t.Errorf("remembers %v of what is gone", r.known)
	}
}

// A pod that has ended has no containers, even if its sandbox still exists, unless one is running.
func TestPodsThatHaveEnded(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		for _, c := range []struct {
			ended bool
			want  string
		}{{true, ""}, {false, "ns/a/app:11"}} {
			run := t.TempDir()
			server := &fakeRuntime{}
			server.set(container{podUID: "uid-a", name: "app", id: "1", pid: 11, ended: c.ended})
			server.serve(t, run, "containerd/containerd.sock")
			p := pod("a", "uid-a")
			p.Status.Phase = phase
			if got, err := NewRuntime(DialBelow(run)).Containers(t.Context(), []corev1.Pod{p}); err != nil || found(got) != c.want {
				t.Errorf("%s, ended %t: %q, %v, want %q", phase, c.ended, found(got), err, c.want)
			}
		}
	}
}

func TestRuntimeGoesAndReturns(t *testing.T) {
	run := t.TempDir()
	pods := []corev1.Pod{pod("a", "uid-a")}
	r := NewRuntime(DialBelow(run))
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
