// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// nriRuntime is the runtime's end of a connection to a plugin.
type nriRuntime struct {
	api.PluginService

	registered chan string
	close      func()
}

// RegisterPlugin implements [api.RuntimeService].
func (r *nriRuntime) RegisterPlugin(_ context.Context, request *api.RegisterPluginRequest) (*api.Empty, error) {
	r.registered <- request.GetPluginIdx() + "-" + request.GetPluginName()
	return &api.Empty{}, nil
}

// UpdateContainers implements [api.RuntimeService].
func (*nriRuntime) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("the agent changes no container")
}

// accept returns the next plugin that connects and registers.
func accept(t *testing.T, l net.Listener) *nriRuntime {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	mux := multiplex.Multiplex(conn)
	served, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	called, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	r := &nriRuntime{registered: make(chan string, 1), PluginService: api.NewPluginClient(ttrpc.NewClient(called)), close: func() { mux.Close(); conn.Close() }}
	api.RegisterRuntimeService(server, r)
	go server.Serve(t.Context(), served) //nolint:errcheck // until the connection ends
	t.Cleanup(r.close)
	if name := <-r.registered; name != "50-bpfman" {
		t.Errorf("the plugin is %s", name)
	}
	return r
}

// configure returns the events to which the plugin subscribes.
func (r *nriRuntime) configure(t *testing.T) api.EventMask {
	t.Helper()
	answer, err := r.Configure(t.Context(), &api.ConfigureRequest{RuntimeName: "test", RuntimeVersion: "v2", RegistrationTimeout: 5000, RequestTimeout: 2000})
	if err != nil {
		t.Fatal(err)
	}
	return api.EventMask(answer.GetEvents())
}

// The container runtime calls the agent for starts and ends, and for nothing with which it could change a container. Its answer is in time, and it
// connects again.
func TestPlugin(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	l, err := net.Listen("unix", socket) //nolint:noctx // it doesn't wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	told := make(chan string, 100)
	var left time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		WatchStarts(socket)(ctx, program.Starts{
			Starting: func(ctx context.Context, of program.Container) error {
				end, _ := ctx.Deadline()
				left = time.Until(end)
				told <- fmt.Sprintf("%+v", of)
				if of.Pod == "refused" {
					return errors.New("not yet")
				}
				return nil
			},
			Ended:     func(_ context.Context, id string) { told <- "ended " + id },
			Existing:  func(_ context.Context, ids []string) { told <- "existing " + strings.Join(ids, " ") },
			Connected: func(_ context.Context, err error) { told <- fmt.Sprint("connected: ", err) },
		})
	}()
	defer func() { cancel(); <-ended }()

	r := accept(t, l)
	var mask api.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX, api.Event_START_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	if events := r.configure(t); events != mask {
		t.Errorf("it subscribes to %s, not to %s", events.PrettyString(), mask.PrettyString())
	}
	pod := &api.PodSandbox{
		Id: "s1", Name: "web", Namespace: "default", Uid: "uid", Labels: map[string]string{"app": "web"}, Pid: 7,
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/n"}}},
	}
	inNode := &api.PodSandbox{Id: "s2", Name: "refused", Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "mount"}}}}
	container := &api.Container{Id: "c1", PodSandboxId: "s1", Name: "init", Pid: 8}
	_, err = r.Synchronize(t.Context(), &api.SynchronizeRequest{Pods: []*api.PodSandbox{pod}, Containers: []*api.Container{container}})
	_, err1 := r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod})
	limited, cancelLimited := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancelLimited()
	_, err2 := r.StartContainer(limited, &api.StartContainerRequest{Pod: pod, Container: container})
	if left < time.Second || left > 2*time.Second-margin {
		t.Errorf("%s are left to answer a call with a deadline of 2 seconds", left)
	}
	_, err3 := r.StopContainer(t.Context(), &api.StopContainerRequest{Pod: pod, Container: container})
	_, err4 := r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod})
	if err := errors.Join(err, err1, err2, err3, err4); err != nil {
		t.Error(err)
	}
	if _, err := r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: inNode}); err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("the start that is refused: %v", err)
	}
	// As a runtime before NRI 0.9 sends it.
	if _, err := r.StateChange(t.Context(), &api.StateChangeEvent{Event: api.Event_RUN_POD_SANDBOX, Pod: inNode}); err == nil {
		t.Error("the start isn't refused")
	}
	r.close()

	again := accept(t, l)
	again.configure(t)
	for range 2 { // a runtime that calls it again doesn't end the agent
		if _, err := again.Synchronize(t.Context(), &api.SynchronizeRequest{}); err != nil {
			t.Error(err)
		}
	}
	is := program.Container{
		Namespace: "default", Pod: "web", PodUID: "uid", PodLabels: map[string]string{"app": "web"}, Sandbox: "s1", NetNS: "/proc/7/ns/net",
	}
	first := is
	first.Name, first.ID, first.PID = "init", "c1", 8
	refused := fmt.Sprintf("%+v", program.Container{Pod: "refused", Sandbox: "s2", HostNetwork: true, HostPID: true})
	want := []string{
		"existing s1 c1", "connected: <nil>", fmt.Sprintf("%+v", is), fmt.Sprintf("%+v", first), "ended c1", "ended s1", refused, refused,
		"connected: the agent isn't connected to the container runtime's NRI: it ended the connection", "existing ", "connected: <nil>", "existing ", "connected: <nil>",
	}
	var got []string
	for range want {
		got = append(got, <-told)
	}
	if got[8] != want[8] && strings.HasPrefix(got[8], want[8]) {
		got[8] = want[8] // with the error of the connection
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A container whose process or namespaces the runtime doesn't report is unknown.
func TestUnknownStart(t *testing.T) {
	pod := &api.PodSandbox{Id: "s", Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: "/run/netns/n"}}}}
	if of := announce(pod, &api.Container{Id: "c"}); of.Err == nil {
		t.Error("a container without a process is known")
	}
	if of := announce(&api.PodSandbox{Id: "s", Pid: 7}, nil); of.Err == nil || of.HostNetwork || of.HostPID || of.NetNS != "" {
		t.Errorf("of a pod without namespaces, this is known: %+v", of)
	}
	if of := announce(pod, nil); of.Err != nil || of.NetNS != "/run/netns/n" || of.HostNetwork {
		t.Errorf("a sandbox without a process is %+v", of)
	}
}
