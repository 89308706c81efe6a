// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Daemon is the bpfman daemon of a node. Its programs stay while its process is restarted.
type Daemon struct {
	*daemontest.Daemon

	mu sync.Mutex
	// process is closed when the current process ends. It is nil if there is none.
	process chan struct{}
	// started is closed when the next process starts.
	started chan struct{}
	hangs   bool
	takes   func(call string) time.Duration
	clock   time.Duration
	// changed is called after a call has taken effect.
	changed func()
}

// calls takes the time that a call took in the daemon of v0.6.0, in the order of magnitude.
func callTime(call string) time.Duration {
	switch call {
	case "Load":
		return 300 * time.Millisecond
	case "Attach", "Detach", "Unload":
		return 30 * time.Millisecond
	}
	return 3 * time.Millisecond
}

func newDaemon(root string, changed func()) *Daemon {
	d := &Daemon{Daemon: daemontest.New(root), started: make(chan struct{}), takes: callTime, changed: changed}
	d.SetFault(d.serve)
	d.LoadedAt = time.Now().Format(loadTime)
	d.Start()
	return d
}

// serve takes the time of a call, before it takes effect.
func (d *Daemon) serve(call string, _ proto.Message, done bool) error {
	if done {
		return nil
	}
	d.mu.Lock()
	process, hangs, takes := d.process, d.hangs, d.takes(call)
	d.mu.Unlock()
	var finished <-chan time.Time
	if !hangs {
		finished = time.After(takes)
	}
	select {
	case <-finished:
		return nil
	case <-process:
		return errKilled
	}
}

var errKilled = status.Error(codes.Unavailable, "error reading from server: EOF")

// Start starts the daemon, unless it runs. Agents connect to it.
func (d *Daemon) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		d.process, d.hangs = make(chan struct{}), false
		close(d.started)
		d.started = make(chan struct{})
	}
}

// Kill ends the daemon. The call in progress has no effect.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		close(d.process)
		d.process = nil
	}
}

// Hang makes calls last until the daemon is killed.
func (d *Daemon) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = true
}

// SetTime sets the time that each call takes. Nil means about what it takes in reality.
func (d *Daemon) SetTime(takes func(call string) time.Duration) {
	if takes == nil {
		takes = callTime
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes = takes
}

// Forget makes the daemon lose all programs, as if its database and its pins were removed. The kernel removes them.
func (d *Daemon) Forget() error {
	d.mu.Lock()
	now := time.Now().Add(d.clock)
	d.mu.Unlock()
	err := d.Reset(now.Format(loadTime))
	d.changed()
	return err
}

func (d *Daemon) setClock(by time.Duration) {
	d.mu.Lock()
	d.clock = by
	d.mu.Unlock()
	d.SetLoadedAt(time.Now().Add(by).Format(loadTime))
}

// loadTime is the format of a program's load time.
const loadTime = "2006-01-02T15:04:05-0700"

func (d *Daemon) service() service { return service{&gobpfman.Bpfman_ServiceDesc, d.Service()} }

// running returns a channel that is closed when the current process ends, or nil, and one that is closed when the next one
// starts.
func (d *Daemon) running() (process, started <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process, d.started
}

// onConnect calls f each time the daemon has started, until ctx ends.
func (d *Daemon) onConnect(ctx context.Context, f func()) {
	for {
		process, started := d.running()
		if process != nil {
			f()
		}
		select {
		case <-started:
		case <-ctx.Done():
			return
		}
	}
}

// daemonConn is a process's connection to the daemon.
type daemonConn struct {
	*process
	unary

	daemon *Daemon
}

var _ grpc.ClientConnInterface = &daemonConn{}

var errGone = status.Error(codes.Unavailable, "the connection is closed")

// Invoke implements [grpc.ClientConnInterface].
func (c *daemonConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	request, response := args.(proto.Message), reply.(proto.Message) //nolint:errcheck,forcetypeassert // a client's calls have them
	e := Event{Actor: c.Name, Verb: path.Base(method), Resource: ResourceDaemon, Call: request}
	if err := c.happen(ctx, e); err != nil {
		return err
	}
	process, _ := c.daemon.running()
	if process == nil {
		return status.Error(codes.Unavailable, "connection error: connect: connection refused")
	}
	type result struct {
		response proto.Message
		err      error
	}
	answered := make(chan result, 1)
	go func() { //nolint:contextcheck,gosec // the daemon continues even if the client is gone
		response, err := c.daemon.service().call(context.Background(), method, request)
		if err == nil {
			c.daemon.changed()
		}
		answered <- result{response, err}
	}()
	select {
	case r := <-answered:
		if r.err != nil {
			return r.err
		}
		proto.Merge(response, r.response)
	case <-process:
		return errKilled
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-c.alive.Done():
		return errGone
	}
	e.Done = true
	return c.happen(ctx, e)
}
