// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/controller"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/tests/bytecodetest"
)

// traffic counts the bytes on the connections of a client, including TLS.
type traffic struct{ received, sent atomic.Int64 }

// count makes a client count its traffic. It then has its own connection, which it doesn't share with other
// clients of the same configuration.
func (t *traffic) count(config *rest.Config) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{conn, t}, nil
	}
}

type countedConn struct {
	net.Conn

	traffic *traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}

// agents are real agents in this process. Each has its own connection, and its own daemon in memory.
type agents struct {
	stop    context.CancelFunc
	ended   sync.WaitGroup
	traffic traffic
	count   int
	// lastWrite is the time of the API server's response to the last write of a report, in nanoseconds since 1970.
	lastWrite atomic.Int64
	// requests are the requests of the first agent.
	requests recording
	err      chan error
}

// startAgents starts agents for the nodes from first to last.
func startAgents(ctx context.Context, c *controlPlane, first, last int) (*agents, error) {
	ctx, stop := context.WithCancel(ctx)
	a := &agents{stop: stop, count: last - first, err: make(chan error, 1)}
	for i := first; i < last; i++ {
		config := c.as(agentAccount)
		config.UserAgent = v1alpha1.AgentFieldManager
		a.traffic.count(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &writeTimes{next, &a.lastWrite} })
		if i == first {
			config.Wrap(a.requests.wrap)
		}
		if err := a.start(ctx, c, config, nodeName(i)); err != nil {
			return nil, errors.Join(fmt.Errorf("start agent of %s: %w", nodeName(i), err), a.end())
		}
	}
	return a, nil
}

// start starts an agent in the same way as the command bpfman-agent.
func (a *agents) start(ctx context.Context, c *controlPlane, config *rest.Config, node string) error {
	root := filepath.Join(c.dir, "daemons", node)
	server, err := cluster.New(config, "bpfman-agent", node, namespace, logr.Discard())
	if err == nil {
		err = server.Serve(nil)
	}
	if err != nil {
		return err
	}
	measured := metrics.New(prometheus.NewRegistry())
	store := &bytecode.Store{Dir: filepath.Join(root, "bytecode"), Limit: 256 << 20}
	agent := controller.New(controller.Options{
		Cluster: server, Inventory: daemon.NewInventory(daemontest.New(root), root), NodeName: node, Namespace: namespace, Drift: time.Minute,
		Interfaces:    func() (map[string]program.Interface, error) { return interfaces, nil },
		Containers:    func(context.Context, []corev1.Pod) ([]program.Container, error) { return nil, nil },
		PodInterfaces: func([]program.Container) {},
		Metrics:       measured,
		Bpffs:         filepath.Join(root, "run/bpfman/fs"),
		Bytecode:      &bytecode.Library{Read: bytecodetest.Reader{}.Read, Store: store, Observe: measured.Read},
	})
	a.ended.Go(func() {
		if err := agent.Run(ctx, func(_ context.Context, f func()) { f() }); err != nil {
			select {
			case a.err <- fmt.Errorf("agent of %s: %w", node, err):
			default:
			}
		}
	})
	return nil
}

// interfaces are the interfaces of every node.
var interfaces = map[string]program.Interface{networkInterface: {Index: 2}}

// end ends the agents.
func (a *agents) end() error {
	a.stop()
	a.ended.Wait()
	select {
	case err := <-a.err:
		return err
	default:
		return nil
	}
}

// lastReport returns the time of the last write of a report.
func (a *agents) lastReport() time.Time { return time.Unix(0, a.lastWrite.Load()) }

// writeTimes stores the time of the last write of a report.
type writeTimes struct {
	next http.RoundTripper
	last *atomic.Int64
}

func (w *writeTimes) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if request.Method == http.MethodPut && strings.HasSuffix(request.URL.Path, "/status") {
		now := time.Now().UnixNano()
		for last := w.last.Load(); last < now && !w.last.CompareAndSwap(last, now); last = w.last.Load() {
		}
	}
	return response, err
}

// loneAgent is the agent's executable, with a daemon in memory that this process serves.
type loneAgent struct {
	*component

	serving interface{ Stop() }
}

// startLoneAgent starts the executable for a node.
func startLoneAgent(c *controlPlane, path, node string) (*loneAgent, error) {
	root, err := os.MkdirTemp(c.dir, "daemon-")
	if err != nil {
		return nil, fmt.Errorf("make the daemon's directory: %w", err)
	}
	socket := filepath.Join(root, "bpfman.sock")
	listener, err := net.Listen("unix", socket) //nolint:noctx // it returns immediately
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", socket, err)
	}
	server := daemontest.New(root).Server()
	go func() { _ = server.Serve(listener) }() // until it is stopped
	kubeconfig, err := c.kubeconfig("agent", c.accounts[agentAccount])
	if err != nil {
		return nil, err
	}
	process, err := startComponent(c.dir, path, []string{"KUBECONFIG=" + kubeconfig, "KUBE_NODE_NAME=" + node},
		"--daemon-socket", socket, "--daemon-root", root, "--namespace", namespace, "--host-proc", "/proc", "--bytecode-dir", filepath.Join(root, "bytecode"),
		"--health-probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0")
	if err != nil {
		server.Stop()
		return nil, err
	}
	return &loneAgent{process, server}, nil
}

func (a *loneAgent) stop(ctx context.Context) {
	a.component.stop(ctx)
	a.serving.Stop()
}
