// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	// pluginName and pluginIndex identify the agent to the container runtime. The index decides the order of plugins. The
	// agent only attaches programs, so that it doesn't matter.
	pluginName, pluginIndex = "bpfman", "50"
	// reconnect is the time until the next attempt to connect to the container runtime.
	reconnect = 2 * time.Second
	// registration is the deadline of the registration with the container runtime, which has one of 5 seconds.
	registration = 10 * time.Second
	// margin is the part of the runtime's deadline that is left for the answer. A plugin that answers too late is disconnected.
	margin = 400 * time.Millisecond
)

// WatchStarts returns a function that reports the starts of pods and containers, until ctx ends. It is a plugin of the
// container runtime, by NRI (https://github.com/containerd/nri), over a socket.
func WatchStarts(socket string) func(ctx context.Context, starts program.Starts) {
	return func(ctx context.Context, starts program.Starts) {
		for ctx.Err() == nil {
			err := runPlugin(ctx, socket, starts)
			if ctx.Err() != nil {
				return
			}
			starts.Connected(ctx, problem.Errorf(problem.StartsNotReported, "the agent isn't connected to the container runtime's NRI: %w", err))
			select {
			case <-ctx.Done():
			case <-time.After(reconnect):
			}
		}
	}
}

// runPlugin runs the plugin until it is disconnected.
func runPlugin(ctx context.Context, socket string, starts program.Starts) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	registered := make(chan struct{})
	p := &plugin{logr.FromContextOrDiscard(ctx), starts, sync.OnceFunc(func() { close(registered) })}
	runtime, err := stub.New(p, stub.WithConnection(conn), stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex),
		stub.WithLogger(nriLog{p.log}), stub.WithOnClose(cancel))
	if err != nil {
		return problem.Errorf(problem.StartsNotReported, "register with the container runtime: %w", err)
	}
	ended := make(chan error, 1)
	// The stub waits forever for a runtime that ends after the registration. Then it is left behind, without its connection.
	go func() { ended <- runtime.Run(ctx) }()
	late := time.NewTimer(registration)
	defer late.Stop()
	awaited := registered
	for {
		select {
		case <-awaited:
			awaited = nil
			late.Stop()
		case <-late.C:
			return problem.Errorf(problem.StartsNotReported, "the registration takes too long")
		case err := <-ended:
			return errors.Join(problem.Errorf(problem.StartsNotReported, "it ended the connection"), err)
		case <-ctx.Done():
			return problem.Errorf(problem.StartsNotReported, "it ended the connection")
		}
	}
}

// plugin handles the events of NRI. The contexts of the calls have the runtime's deadline, and not the log.
type plugin struct {
	log    logr.Logger
	starts program.Starts
	// registered can be called repeatedly.
	registered func()
}

// Synchronize is called with everything that exists: once, if the runtime keeps to the protocol.
func (p *plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	ids := make([]string, 0, len(pods)+len(containers))
	for _, pod := range pods {
		ids = append(ids, pod.GetId())
	}
	for _, c := range containers {
		ids = append(ids, c.GetId())
	}
	ctx = logr.NewContext(ctx, p.log)
	p.starts.Existing(ctx, ids)
	p.starts.Connected(ctx, nil)
	p.registered()
	return nil, nil
}

// RunPodSandbox is called when a pod has its network, and no container yet.
func (p *plugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return p.starting(ctx, announce(pod, nil))
}

// StartContainer is called when a container's process exists, which waits to execute the container's command.
func (p *plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.starting(ctx, announce(pod, c))
}

func (p *plugin) starting(ctx context.Context, of program.Container) error {
	ctx = logr.NewContext(ctx, p.log)
	if end, limited := ctx.Deadline(); limited {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, end.Add(-margin))
		defer cancel()
	}
	return p.starts.Starting(ctx, of)
}

// StopPodSandbox is called before a sandbox ends.
func (p *plugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.starts.Ended(logr.NewContext(ctx, p.log), pod.GetId())
	return nil
}

// RemovePodSandbox is called after a sandbox has ended, even if it was never ready.
func (p *plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.starts.Ended(logr.NewContext(ctx, p.log), pod.GetId())
	return nil
}

// StopContainer is called when a container ends.
func (p *plugin) StopContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.starts.Ended(logr.NewContext(ctx, p.log), c.GetId())
	return nil, nil
}

// RemoveContainer is called after a container has ended, even if it never started.
func (p *plugin) RemoveContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.starts.Ended(logr.NewContext(ctx, p.log), c.GetId())
	return nil
}

// announce returns a container, or the entry of a sandbox if c is nil, as the runtime's lists describe it after the start.
func announce(pod *api.PodSandbox, c *api.Container) program.Container {
	of := program.Container{
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), PodLabels: pod.GetLabels(),
		Sandbox: pod.GetId(), Name: c.GetName(), ID: c.GetId(), PID: int(c.GetPid()),
	}
	namespaces := pod.GetLinux().GetNamespaces()
	if len(namespaces) == 0 { // it can be in those of the node, or not
		of.Err = problem.Errorf(problem.StartedBeforeAttached, "the container runtime doesn't report the pod's namespaces")
		return of
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(namespaces, func(n *api.LinuxNamespace) bool { return n.GetType() == kind })
	}
	of.HostNetwork, of.HostPID = !has("network"), !has("pid")
	if c != nil && of.PID == 0 {
		of.Err = problem.Errorf(problem.StartedBeforeAttached, "the container runtime doesn't report the container's process before its start")
	}
	if i := slices.IndexFunc(namespaces, func(n *api.LinuxNamespace) bool { return n.GetType() == "network" }); i >= 0 {
		of.NetNS = namespaces[i].GetPath()
	}
	if pid := pod.GetPid(); pid > 0 && !of.HostNetwork {
		of.NetNS = netnsOf(int(pid))
	}
	return of
}

// nriLog writes what the stub says about the connection to the log.
type nriLog struct{ log logr.Logger }

func (l nriLog) Debugf(context.Context, string, ...any) {}

func (l nriLog) Infof(_ context.Context, format string, args ...any) {
	l.log.V(1).Info("NRI: " + fmt.Sprintf(format, args...))
}

func (l nriLog) Warnf(_ context.Context, format string, args ...any) {
	l.log.Info("NRI: " + fmt.Sprintf(format, args...))
}

func (l nriLog) Errorf(_ context.Context, format string, args ...any) {
	l.log.Info("NRI: " + fmt.Sprintf(format, args...))
}
