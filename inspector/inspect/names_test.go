// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/inspector/bpffs"
	"github.com/bpfman/bpfman-operator/inspector/pods"
	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/inspector/report"
	"github.com/bpfman/bpfman-operator/internal/cri"
)

// containerRuntime has sandboxes, and counts lists.
type containerRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	sandboxes []*runtimeapi.PodSandbox
	asked     int
}

func (r *containerRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.asked++
	return &runtimeapi.ListPodSandboxResponse{Items: r.sandboxes}, nil
}

func (*containerRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

// namesOf returns names, and the container runtime that they ask.
func namesOf(t *testing.T) (*names, *containerRuntime) {
	t.Helper()
	run := t.TempDir()
	socket := filepath.Join(run, cri.Sockets[0])
	if err := os.Mkdir(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answers, server := &containerRuntime{}, grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, answers)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return &names{run: run}, answers
}

// Containers that aren't the kubelet's are asked for once a minute, however many appear. What a container has mounted says
// nothing about other pods.
func TestStrangersAreAskedForOnce(t *testing.T) {
	n, answers := namesOf(t)
	facts := &report.Facts{Pins: []bpffs.Pin{
		{Path: "/pods/11111111-2222-3333-4444-555555555555/volumes/x", Place: process.Place{Container: "first"}},
	}}
	for _, container := range []string{"first", "second", "third"} {
		facts.NetNS = append(facts.NetNS, process.Namespace{Place: process.Place{Container: container}})
		for range 3 {
			n.want(t.Context(), facts, false)
		}
	}
	if n.err != nil || answers.asked != 3 || len(n.strangers) != 3 {
		t.Errorf("asked %d times for %v, %v", answers.asked, n.strangers, n.err)
	}
	n.want(t.Context(), facts, true)
	if answers.asked != 4 {
		t.Errorf("asked %d times a minute later", answers.asked)
	}
}

// The kubelet mounts a pod's volumes before it starts the pod. If the pod has the host's network and nothing open, only
// its volume shows that its name is needed.
func TestNameOfAPodWithAVolume(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	n, answers := namesOf(t)
	facts := &report.Facts{Pins: []bpffs.Pin{{Path: "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/maps/mount/counts"}}}
	for range 2 {
		n.want(t.Context(), facts, false)
	}
	if n.err != nil || answers.asked != 1 {
		t.Errorf("asked %d times before the pod starts, %v", answers.asked, n.err)
	}
	answers.sandboxes = []*runtimeapi.PodSandbox{{Id: "sandbox", Labels: map[string]string{
		cri.PodNamespaceLabel: "apps", cri.PodNameLabel: "reader", cri.PodUIDLabel: uid,
	}}}
	for range 2 {
		n.want(t.Context(), facts, true)
	}
	if want := (pods.Name{Namespace: "apps", Pod: "reader"}); n.err != nil || answers.asked != 2 || n.answer.ByPod[uid] != want {
		t.Errorf("%+v after asking %d times, %v; want %+v", n.answer.ByPod, answers.asked, n.err, want)
	}
}
