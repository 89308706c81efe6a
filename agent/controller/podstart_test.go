// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/cri"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// The node of BenchmarkPodStart: interfaces besides lo, pods with two containers each, and objects, of which the first ones are
// attached to eth0, and the last one to the pods that start.
const (
	nodeInterfaces = 300
	nodePods       = 30
	nodeObjects    = 50
	hostObjects    = 35
)

// BenchmarkPodStart measures the agent's work for the start of a pod that one of 50 objects selects, on a node with 300
// interfaces: its processor time and allocations, with those of the fakes of the API server and of the daemon, and the lists of
// interfaces. Interfaces and the kernel's messages about them are real.
func BenchmarkPodStart(b *testing.B) {
	prerequisite.NeedsRoot(b, "a network of its own needs CAP_SYS_ADMIN")
	network, other := newNetwork(b), newNetwork(b)
	network.in(b, func() {
		link(b, "eth0", "pair")
		for n := range nodeInterfaces/2 - 1 {
			link(b, fmt.Sprint("veth", n), fmt.Sprint("peer", n))
		}
	})
	pods := &runtimePods{}
	for n := range nodePods {
		pods.add(fmt.Sprint("other-", n), "other")
	}
	server := &apiServer{lists: map[string]string{"tcxprograms": hostAndPodObjects()}}
	var dumps atomic.Int32
	h, stop := startController(b, server, func(o *Options) {
		o.Interfaces = func() (found map[string]program.Interface, err error) {
			dumps.Add(1)
			network.in(b, func() { found, err = node.Interfaces() })
			return found, err
		}
		o.Containers = node.NewRuntime(func() (node.Connection, string, error) { return pods, "runtime", nil }).Containers
	})
	defer stop()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go network.in(b, func() {
		node.WatchInterfaces(ctx, func() { h.interfacesChanged(ctx) }, func(err error) { b.Error(err) })
	})
	within(b, time.Minute, "attached", func() bool { return h.links() == hostObjects && h.reportsAgree(server) })
	<-time.After(quiet)

	dumps.Store(0)
	cpu, allocated := processorTime(b, unix.RUSAGE_SELF), allocations()
	var plugin time.Duration
	for n := 0; b.Loop(); n++ {
		name := fmt.Sprint("web-", n)
		tell := func(event, phase, container string) {
			if err := server.tell("pods", event, podObject(name, phase, container)); err != nil {
				b.Fatal(err)
			}
		}
		tell("ADDED", "Pending", "")
		network.in(b, func() { // as the network plugin, whose work isn't the agent's
			start := processorTime(b, unix.RUSAGE_THREAD)
			link(b, "web"+fmt.Sprint(n), "inside")
			other.receive(b, "inside", fmt.Sprint("in", n))
			plugin += processorTime(b, unix.RUSAGE_THREAD) - start
		})
		<-time.After(quiet / 2)
		tell("MODIFIED", "Pending", `"state":{"waiting":{"reason":"ContainerCreating"}}`)
		pods.add(name, "web")
		tell("MODIFIED", "Running", `"containerID":"containerd://`+name+`-a","state":{"running":{}}`)
		tell("MODIFIED", "Running", `"containerID":"containerd://`+name+`-a","ready":true,"state":{"running":{}}`)
		within(b, time.Minute, "attached in the pod", func() bool { return h.links() == hostObjects+n+1 })
		<-time.After(quiet)
		if !h.reportsAgree(server) {
			b.Fatal("the link in the pod isn't reported")
		}
	}
	starts := float64(b.N)
	ms := (processorTime(b, unix.RUSAGE_SELF) - cpu - plugin).Seconds() * 1000 / starts
	mb := float64(allocations()-allocated) / 1e6 / starts
	lists := float64(dumps.Load()) / starts
	b.ReportMetric(ms, "cpu-ms/op")
	b.ReportMetric(mb, "MB/op")
	b.ReportMetric(lists, "lists/op")
	figures.Keep(b, map[string]any{
		"pod_start_cpu_ms": figures.Round(ms), "pod_start_allocated_mb": figures.Round(mb), "pod_start_interface_lists": figures.Round(lists),
	})
}

// quiet is longer than the delay of the kernel's messages, and than the pause between two reports of links.
const quiet = 1200 * time.Millisecond

// processorTime returns what this thread or process has used (getrusage(2)).
func processorTime(b *testing.B, who int) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(who, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// allocations returns how many bytes this process has allocated.
func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// hostAndPodObjects returns the objects, in JSON.
func hostAndPodObjects() string {
	objects := make([]string, nodeObjects)
	for n := range objects {
		where := `"interfaceselector":{"interfaces":["eth0"]}`
		if n >= hostObjects {
			app := fmt.Sprint("app-", n)
			if n == nodeObjects-1 {
				app = "web"
			}
			where += `,"containers":{"namespace":"","pods":{"matchLabels":{"app":"` + app + `"}}}`
		}
		objects[n] = fmt.Sprintf(`{"metadata":{"name":"object-%d","uid":"uid-%d"},"spec":{"bpffunctionname":"f","direction":"ingress","priority":50,%s,
			"bytecode":{"path":"/object.o"},"nodeselector":{}}}`, n, n, where)
	}
	return strings.Join(objects, ",")
}

// podObject returns a pod, in JSON. Container is the status of its container, or "".
func podObject(name, phase, container string) string {
	if container != "" {
		container = `{"name":"a","image":"app:1","imageID":"","restartCount":0,` + container + `}`
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"default","uid":"uid-%s","resourceVersion":"1","labels":{"app":"web"}},
		"spec":{"nodeName":"node","containers":[{"name":"a","image":"app:1"}]},"status":{"phase":"%s","containerStatuses":[%s]}}`, name, name, phase, container)
}

// namespace is a network namespace.
type namespace struct{ fd int }

func newNetwork(b *testing.B) namespace {
	b.Helper()
	var n namespace
	daemontest.OnOwnThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			b.Errorf("make a network namespace: %v", err)
		}
	})
	b.Cleanup(func() { _ = unix.Close(n.fd) })
	return n
}

// in calls a function on a thread in the namespace.
func (n namespace) in(b *testing.B, do func()) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Error(err)
		return
	}
	defer unix.Close(host)
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		b.Error(err)
		return
	}
	do()
	if err := unix.Setns(host, unix.CLONE_NEWNET); err != nil {
		b.Error(err)
		runtime.LockOSThread() // the thread ends with the goroutine
	}
}

// receive moves an interface of this thread's namespace to n.
func (n namespace) receive(b *testing.B, name, as string) {
	b.Helper()
	moved, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetName(moved, as)
	}
	if err == nil {
		err = netlink.LinkSetNsFd(moved, n.fd)
	}
	if err != nil {
		b.Error(err)
	}
}

// link makes a pair of interfaces in this thread's namespace.
func link(b *testing.B, name, peer string) {
	b.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
	err := netlink.LinkAdd(pair)
	if err == nil {
		err = netlink.LinkSetUp(pair)
	}
	if err != nil {
		b.Errorf("make %s: %v", name, err)
	}
}

// runtimePods is a connection to a container runtime, whose answers are encoded before.
type runtimePods struct {
	containers runtimeapi.ListContainersResponse
	sandboxes  runtimeapi.ListPodSandboxResponse
	encoded    atomic.Pointer[map[string][]byte]
}

// add adds a pod with two containers.
func (r *runtimePods) add(name, app string) {
	labels := map[string]string{
		cri.PodNamespaceLabel: "default", cri.PodNameLabel: name, cri.PodUIDLabel: "uid-" + name, "app": app,
	}
	r.sandboxes.Items = append(r.sandboxes.Items, &runtimeapi.PodSandbox{Id: "sandbox-" + name, State: runtimeapi.PodSandboxState_SANDBOX_READY, Labels: labels})
	for _, container := range []string{"a", "b"} {
		of := map[string]string{cri.ContainerNameLabel: container}
		maps.Copy(of, labels)
		r.containers.Containers = append(r.containers.Containers, &runtimeapi.Container{
			Id: name + "-" + container, PodSandboxId: "sandbox-" + name, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: of,
			Metadata: &runtimeapi.ContainerMetadata{Name: container}, Image: &runtimeapi.ImageSpec{Image: strings.Repeat("i", 64)}, ImageRef: strings.Repeat("i", 64),
			Annotations: map[string]string{"io.kubernetes.container.hash": "c7ba5ed1", "io.kubernetes.container.restartCount": "0", "io.kubernetes.container.terminationMessagePath": "/dev/termination-log"},
		})
	}
	info := map[string]string{"info": `{"pid":1,"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/proc/1/ns/net"}]}}}`}
	answers := map[string][]byte{}
	for method, answer := range map[string]proto.Message{
		"ListContainers": &r.containers, "ListPodSandbox": &r.sandboxes,
		"ContainerStatus": &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, Info: info},
		"PodSandboxStatus": &runtimeapi.PodSandboxStatusResponse{Info: info, Status: &runtimeapi.PodSandboxStatus{Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}},
		}}},
	} {
		answers[method], _ = proto.Marshal(answer)
	}
	r.encoded.Store(&answers)
}

// Invoke implements [grpc.ClientConnInterface].
func (r *runtimePods) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	return proto.Unmarshal((*r.encoded.Load())[method[strings.LastIndex(method, "/")+1:]], reply.(proto.Message)) //nolint:errcheck // as gRPC generates it
}

// NewStream implements [grpc.ClientConnInterface].
func (*runtimePods) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("the runtime has no streams")
}

// Close implements [io.Closer].
func (*runtimePods) Close() error { return nil }
