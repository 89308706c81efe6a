// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventful is a runtime with events.
type eventful struct {
	fakeRuntime

	name, version string
	events        chan *runtimeapi.ContainerEventResponse
}

func (r *eventful) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: r.name, RuntimeVersion: r.version}, nil
}

func (r *eventful) GetContainerEvents(_ *runtimeapi.GetEventsRequest, to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if r.events == nil {
		return status.Error(codes.Unimplemented, "unknown method")
	}
	for event := range r.events {
		if event == nil {
			return status.Error(codes.Unavailable, "restarting")
		}
		if err := to.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// Events of the runtimes that send them to each client are used. After they may have been lost, any pod can have changed.
func TestWatchContainers(t *testing.T) {
	for name, c := range map[string]struct {
		name, version string
		events        bool
		failure       string
	}{
		"containerd 2":                {"containerd", "v2.1.4", true, ""},
		"CRI-O":                       {"cri-o", "1.34.1", true, ""},
		"CRI-O with events off":       {"cri-o", "1.34.1", false, "no events"},
		"containerd 1.7":              {"containerd", "1.7.28", true, "containerd 1.7.28"},
		"containerd 1.6, as Debian's": {"containerd", "1.6.20~ds1", true, "containerd 1.6.20~ds1"},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			server := &eventful{name: c.name, version: c.version}
			if c.events {
				server.events = make(chan *runtimeapi.ContainerEventResponse)
			}
			server.serveAs(t, run, "crio/crio.sock", server)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			changed, failed := make(chan string), make(chan error, 1)
			go NewRuntime(DialBelow(run)).Watch(ctx, func(namespace string, labels map[string]string) {
				select {
				case changed <- namespace + "/" + labels["app"]:
				case <-ctx.Done():
				}
			}, func(err error) { failed <- err })
			next := func() string {
				select {
				case is := <-changed:
					return is
				case err := <-failed:
					return "failed: " + err.Error()
				case <-ctx.Done():
					return "nothing"
				}
			}
			if c.failure != "" {
				got := next()
				if got == "/" {
					got = next() // the stream says it
				}
				if !strings.HasPrefix(got, "failed: ") || !strings.Contains(got, c.failure) {
					t.Errorf("%s, want the failure %s", got, c.failure)
				}
				return
			}
			of := &runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
				Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "ns"}, Labels: map[string]string{"app": "web"},
			}}
			for _, step := range []struct {
				event *runtimeapi.ContainerEventResponse
				want  string
			}{{of, "ns/web"}, {&runtimeapi.ContainerEventResponse{}, "/"}, {nil, "/"}, {of, "ns/web"}} {
				if step.want == "ns/web" {
					if got := next(); got != "/" {
						t.Errorf("at the start: %s", got)
					}
				}
				server.events <- step.event
				if step.event == nil {
					continue // the next watch says it
				}
				if got := next(); got != step.want {
					t.Errorf("%s, want %s", got, step.want)
				}
			}
			if len(failed) > 0 {
				t.Error(errors.Join(<-failed))
			}
		})
	}
}

// A runtime whose events can't be used is asked less and less often.
func TestWatchesThatEndEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		dials := 0
		NewRuntime(func() (Connection, string, error) {
			dials++
			return nil, "", errors.New("no runtime")
		}).Watch(ctx, func(string, map[string]string) {}, func(error) {})
		if dials > 25 {
			t.Errorf("%d attempts in two hours", dials)
		}
	})
}
