// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"sync"
	"time"
)

const (
	// restartDelay is the time after which a process that ended by itself is started again.
	restartDelay = 10 * time.Second
	// grace is the time that a process has after SIGTERM.
	grace = 15 * time.Second
	// drain is the time between the end of a process's watches and the end of the process: client-go's filtered watches leak a
	// goroutine if they are stopped while they pass on an event.
	drain = time.Second
)

// Component runs the processes of a component, at most one at a time. A process that ends by itself is started again, as the
// kubelet does.
type Component struct {
	// Name is the actor in events, such as agent/n1.
	Name string

	world *World
	// run runs a process until it ends.
	run func(*process) error
	// crashed, if not nil, is called when the process crashes, before another one starts.
	crashed func()
	// changed is called at the start and the end of processes.
	changed signal

	mu      sync.Mutex
	current *process
	// wanted means that the process is to run.
	wanted bool
	starts int
	ended  []error
}

// process is a process of a component. A process that has crashed runs on until it notices, but nothing gets out of it.
type process struct {
	*Component

	// alive ends when the process crashes or has ended. Requests and calls need it.
	alive context.Context //nolint:containedctx // the lifetime of a process
	kill  context.CancelFunc
	// watching ends a bit earlier.
	watching context.Context //nolint:containedctx // the same
	unwatch  context.CancelFunc
	// ctx ends with SIGTERM.
	ctx       context.Context //nolint:containedctx // the same
	terminate context.CancelFunc
	over      chan struct{}
}

func (w *World) component(name string, run func(*process) error, crashed func()) *Component {
	c := &Component{Name: name, world: w, run: run, crashed: crashed}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.components = append(w.components, c)
	return c
}

// Start starts the component, unless it runs.
func (c *Component) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	c.start()
}

// start starts a process. The caller holds mu.
func (c *Component) start() {
	if c.current != nil || !c.wanted || c.world.isOver() {
		return
	}
	p := &process{Component: c, over: make(chan struct{})}
	p.alive, p.kill = context.WithCancel(context.Background())
	p.watching, p.unwatch = context.WithCancel(p.alive)
	p.ctx, p.terminate = context.WithCancel(context.Background())
	c.current = p
	c.starts++
	c.changed.change()
	c.world.processes.Go(p.live)
}

// happen calls the hooks of an event, and returns an error if the process has crashed.
func (p *process) happen(ctx context.Context, e Event) error {
	err := p.world.events.happen(ctx, e)
	if p.alive.Err() != nil {
		return errCrashed
	}
	return err
}

// live runs the process.
func (p *process) live() {
	err := p.run(p)
	p.kill()
	p.terminate()
	close(p.over)
	c := p.Component
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != p {
		return // it was stopped, or has crashed
	}
	c.ended = append(c.ended, err)
	c.current = nil
	c.changed.change()
	time.AfterFunc(restartDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.start()
	})
}

// Crash ends the process immediately: nothing that it does from now on has an effect. The component stays down until Start. It
// can be called by a hook of the process's own event.
func (c *Component) Crash() {
	p := c.take()
	if p == nil {
		return
	}
	p.kill()
	if c.crashed != nil {
		c.crashed()
	}
	time.AfterFunc(drain, p.terminate)
}

// Stop ends the process with SIGTERM, and waits until it has ended. The component stays down until Start.
func (c *Component) Stop() {
	p := c.take()
	if p == nil {
		return
	}
	p.unwatch()
	<-time.After(drain)
	p.terminate()
	select {
	case <-p.over:
	case <-time.After(grace):
		p.kill()
	}
}

// Running reports whether there is a process.
func (c *Component) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current != nil
}

// Starts returns how many processes were started.
func (c *Component) Starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// Ended returns the errors of processes that ended by themselves.
func (c *Component) Ended() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.ended...)
}

// take takes the process from the component, which is no longer wanted. It returns nil if there is none.
func (c *Component) take() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.current
	c.current, c.wanted = nil, false
	c.changed.change()
	return p
}
