// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// rewatch is the time until the next attempt after a watch has ended. It doubles, up to relook, if watches end early.
	rewatch = 2 * time.Second
	relook  = 10 * time.Minute
	// early is the age below which a watch ends early.
	early = time.Minute
)

// errNoEvents means that the runtime's events can't be used.
var errNoEvents = errors.New("the container runtime has no events for several clients")

// Watch calls changed after a sandbox or container of a pod was created, started, stopped, or deleted, until ctx ends. Changed
// gets the pod's namespace and labels. They are "" and nil if any pod can have changed: at the start, and after events may have
// been lost. If the runtime has no events that can be used, Watch calls failed once.
func (r *Runtime) Watch(ctx context.Context, changed func(namespace string, labels map[string]string), failed func(error)) {
	told, pause := false, rewatch
	for ctx.Err() == nil {
		start := time.Now()
		err := r.watch(ctx, changed)
		if time.Since(start) > early {
			pause = rewatch
		}
		if errors.Is(err, errNoEvents) && !told {
			failed(err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, relook)
	}
}

// watch watches the runtime over a connection of its own, until this ends.
func (r *Runtime) watch(ctx context.Context, changed func(string, map[string]string)) error {
	conn, socket, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	if err := checkEvents(ctx, client); err != nil {
		return fmt.Errorf("watch containers at %s: %w", socket, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return fmt.Errorf("watch containers at %s: %w", socket, err)
	}
	changed("", nil) // there may have been changes before the watch
	for {
		event, err := events.Recv()
		switch {
		case err == nil:
		case status.Code(err) == codes.Unimplemented || errors.Is(err, io.EOF):
			return errNoEvents
		default:
			return fmt.Errorf("watch containers at %s: %w", socket, err)
		}
		of := event.GetPodSandboxStatus()
		changed(of.GetMetadata().GetNamespace(), of.GetLabels())
	}
}

// checkEvents returns an error if a watch would harm others: containerd before 2.0 sends each event to one of its clients, so
// the kubelet would miss those that the agent gets (https://github.com/containerd/containerd/issues/7318).
func checkEvents(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, criDeadline)
	defer cancel()
	is, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return err //nolint:wrapcheck // the caller adds context
	}
	version := strings.TrimPrefix(is.GetRuntimeVersion(), "v")
	if is.GetRuntimeName() == "containerd" && (strings.HasPrefix(version, "1.") || strings.HasPrefix(version, "0.")) {
		return fmt.Errorf("%w: containerd %s", errNoEvents, version)
	}
	return nil
}
