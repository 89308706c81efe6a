// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// nodeFaults are those of a node, its daemon, its container runtime, and the images that it reads.
var nodeFaults = []FaultKind{
	onNode("a daemon that is down", 10*time.Minute, func(n *simulation.Node) func() {
		n.Daemon.Kill()
		return n.Daemon.Start
	}),
	onNode("a daemon that hangs", 5*time.Minute, func(n *simulation.Node) func() {
		n.Daemon.Hang()
		return func() { n.Daemon.Kill(); n.Daemon.Start() }
	}),
	onNode("a slow daemon", 5*time.Minute, func(n *simulation.Node) func() {
		n.Daemon.SetTime(func(string) time.Duration { return 3 * time.Second })
		return func() { n.Daemon.SetTime(nil) }
	}),
	onNode("a container runtime that hangs", 10*time.Minute, func(n *simulation.Node) func() {
		n.Runtime.Hang()
		return n.Runtime.Resume
	}),
	onNode("a slow container runtime", 10*time.Minute, func(n *simulation.Node) func() {
		n.Runtime.SetTime(4 * time.Second)
		return func() { n.Runtime.SetTime(0) }
	}),
	onNode("a node without a network", 10*time.Minute, func(n *simulation.Node) func() {
		n.Cable.Set(simulation.Silent)
		return func() { n.Cable.Set(simulation.Up) }
	}),
	onNode("a clock that is set forward", time.Hour, setClock(24*time.Hour)),
	onNode("a clock that is set back", time.Hour, setClock(-24*time.Hour)),
	{
		Name: "a node that is deleted, and made again with its name", Targets: nodes, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			n := c.node(f.Target)
			if c.Changed(failing) && n.Name == c.canary() {
				return nil // another node would get the revision, which the model doesn't know
			}
			n.Leave()
			c.Until(f, func() { c.later(func() { c.join(n) }) })
			return nil
		},
	},
	duringCalls("a full /run", "Load", "Attach"),
	{
		Name: "a registry that drips", Targets: nodes, Shortest: 10 * time.Second, Longest: 5 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.during(f, func(ctx context.Context, e simulation.Event, _ <-chan struct{}) error {
				if !readsImage(e, f.Target) {
					return nil
				}
				return simulation.Delay(20*time.Second)(ctx, e)
			})
			return nil
		},
	},
	whileReading("a registry that is down", errors.New("dial tcp: connect: connection refused")),
	whileReading("a full disk", errors.New("write the object: no space left on device")),
	{
		Name: "an upgrade", Targets: components, Shortest: time.Second, Longest: time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			component := c.Component(f.Target)
			component.Stop()
			for _, n := range c.Nodes() {
				if n.Agent == component {
					n.ReplacePod()
				}
			}
			c.Until(f, func() { c.startIfOn(component) })
			return nil
		},
	},
}

// onNode is a fault of a node. Begin returns what ends it.
func onNode(name string, longest time.Duration, begin func(*simulation.Node) (end func())) FaultKind {
	return FaultKind{
		Name: name, Targets: nodes, Shortest: time.Second, Longest: longest,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.Until(f, begin(c.node(f.Target)))
			return nil
		},
	}
}

func setClock(by time.Duration) func(*simulation.Node) func() {
	return func(n *simulation.Node) func() {
		n.SetClock(by)
		return func() { n.SetClock(0) }
	}
}

// duringCalls is a fault of a node whose daemon has no space for what these calls store.
func duringCalls(name string, calls ...string) FaultKind {
	return FaultKind{
		Name: name, Targets: nodes, Shortest: time.Second, Longest: 3 * time.Minute, // refused loads are retried less and less often
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.during(f, func(_ context.Context, e simulation.Event, _ <-chan struct{}) error {
				for _, call := range calls {
					if e.Actor == "agent/"+f.Target && e.Resource == simulation.ResourceDaemon && e.Verb == call && !e.Done {
						return status.Error(codes.Aborted, "No space left on device (os error 28)")
					}
				}
				return nil
			})
			return nil
		},
	}
}

func readsImage(e simulation.Event, node string) bool {
	return e.Actor == "agent/"+node && e.Resource == simulation.ResourceRegistry && !e.Done
}

// whileReading is a fault of a node that can't read images.
func whileReading(name string, failure error) FaultKind {
	return FaultKind{
		Name: name, Targets: nodes, Shortest: time.Second, Longest: 5 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.during(f, func(_ context.Context, e simulation.Event, _ <-chan struct{}) error {
				if readsImage(e, f.Target) {
					return failure
				}
				return nil
			})
			return nil
		},
	}
}
