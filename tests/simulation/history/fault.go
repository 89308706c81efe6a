// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// FaultKind is a kind of fault.
type FaultKind struct {
	Name string
	// Requests and Calls say whether it can happen at a request to the API server, or at a call of a daemon.
	Requests, Calls bool
	// Before means that it only happens before an event.
	Before bool
	// Targets returns what a fault without an event can be about.
	Targets func(Plan) []string
	// Shortest and Longest limit how long it lasts.
	Shortest, Longest time.Duration
	// Begin begins the fault. What it returns becomes the result of the event. If the fault lasts, Begin passes what ends it to
	// [Cluster.Until].
	Begin func(ctx context.Context, c *Cluster, f Fault, e simulation.Event) error
}

// Faults contains all kinds of faults.
var Faults = []FaultKind{
	{
		Name: "crash", Requests: true, Calls: true, Targets: components, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			component := c.Component(f.Target)
			c.Until(f, component.Start)
			component.Crash() // the event is lost with the process
			return nil
		},
	},
	{Name: "the answer is lost", Requests: true, Calls: true, Begin: func(ctx context.Context, _ *Cluster, _ Fault, e simulation.Event) error {
		return simulation.Lose(ctx, e)
	}},
	{
		Name: "no answer", Requests: true, Calls: true, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(ctx context.Context, c *Cluster, f Fault, e simulation.Event) error {
			ended := make(chan struct{})
			c.Until(f, func() { close(ended) })
			select {
			case <-ended:
				return simulation.Lose(ctx, e)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
	},
	{
		Name: "a delay", Requests: true, Calls: true, Shortest: 100 * time.Millisecond, Longest: time.Minute,
		Begin: func(ctx context.Context, _ *Cluster, f Fault, e simulation.Event) error {
			return simulation.Delay(f.For.Duration)(ctx, e)
		},
	},
	answer("a conflict", http.StatusConflict, metav1.StatusReasonConflict),
	answer("too many requests", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
	answer("an internal error", http.StatusInternalServerError, metav1.StatusReasonInternalError),
	answer("an unavailable service", http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
	{
		Name: "silence of the API server", Targets: nobody, Shortest: 30 * time.Second, Longest: 2 * time.Hour,
		Begin: network(simulation.Silent),
	},
	{
		Name: "an API server that is down", Targets: nobody, Shortest: time.Second, Longest: 2 * time.Hour,
		Begin: network(simulation.Refusing),
	},
	{
		Name: "a restart of the API server, which forgets what it sent", Targets: nobody,
		Begin: func(_ context.Context, c *Cluster, _ Fault, _ simulation.Event) error {
			c.API.Compact()
			c.API.EndWatches()
			return nil
		},
	},
	{
		Name: "a daemon that is down", Targets: nodes, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			n := c.node(f.Target)
			c.Until(f, n.Daemon.Start)
			n.Daemon.Kill()
			return nil
		},
	},
	{
		Name: "a daemon that hangs", Targets: nodes, Shortest: time.Second, Longest: 5 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			n := c.node(f.Target)
			c.Until(f, func() { n.Daemon.Kill(); n.Daemon.Start() })
			n.Daemon.Hang()
			return nil
		},
	},
	{
		Name: "a slow daemon", Targets: nodes, Shortest: 10 * time.Second, Longest: 5 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			n := c.node(f.Target)
			c.Until(f, func() { n.Daemon.SetTime(nil) })
			n.Daemon.SetTime(func(string) time.Duration { return 3 * time.Second })
			return nil
		},
	},
}

// answer is a fault in which the API server refuses a request.
func answer(name string, code int32, reason metav1.StatusReason) FaultKind {
	return FaultKind{Name: name, Requests: true, Before: true, Begin: func(ctx context.Context, _ *Cluster, _ Fault, e simulation.Event) error {
		return simulation.Answer(code, reason, 0)(ctx, e)
	}}
}

func network(reach simulation.Reach) func(context.Context, *Cluster, Fault, simulation.Event) error {
	return func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
		c.Until(f, func() { c.Network.Set(simulation.Up) })
		c.Network.Set(reach)
		return nil
	}
}

func nobody(Plan) []string { return []string{""} }

func nodes(p Plan) (names []string) {
	for i := range p.Nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	return names
}

func operators(p Plan) (names []string) {
	for i := range p.Operators {
		names = append(names, string(rune('a'+i)))
	}
	return names
}

func components(p Plan) (names []string) {
	for _, n := range nodes(p) {
		names = append(names, "agent/"+n)
	}
	for _, o := range operators(p) {
		names = append(names, "operator/"+o)
	}
	return names
}

func faultOf(kind string) *FaultKind {
	for i := range Faults {
		if Faults[i].Name == kind {
			return &Faults[i]
		}
	}
	return nil
}
