// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// FaultKind is a kind of fault.
type FaultKind struct {
	Name string
	// Requests and Calls say whether it can happen at a request to the API server, or at a call of a daemon.
	Requests, Calls bool
	// Before means that it only happens before an event.
	Before bool
	// Server means that it is about the API server, with any target.
	Server bool
	// Targets returns what a fault without an event can be about.
	Targets func(Plan) []string
	// Shortest and Longest limit how long it lasts.
	Shortest, Longest time.Duration
	// Begin begins the fault. What it returns becomes the result of the event. If the fault lasts, Begin passes what ends it to
	// [Cluster.Until].
	Begin func(ctx context.Context, c *Cluster, f Fault, e simulation.Event) error
}

// Faults contains all kinds of faults.
var Faults = slices.Concat(eventFaults, serverFaults, nodeFaults, []FaultKind{greedyTenant, forgedStatus})

// eventFaults are those of one request or call.
var eventFaults = []FaultKind{
	{
		Name: "crash", Requests: true, Calls: true, Targets: components, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			component := c.Component(f.Target)
			c.Until(f, func() { c.startIfOn(component) })
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
			if err := until(ctx, ended); err != nil {
				return err
			}
			return simulation.Lose(ctx, e)
		},
	},
	{
		Name: "a delay", Requests: true, Calls: true, Shortest: 100 * time.Millisecond, Longest: time.Minute,
		Begin: func(ctx context.Context, _ *Cluster, f Fault, e simulation.Event) error {
			return simulation.Delay(f.For.Duration)(ctx, e)
		},
	},
}

// reboot is a fault whose effects the model knows.
var reboot = FaultKind{
	Name: chaos.Reboot, Targets: nodes, Shortest: time.Second, Longest: 5 * time.Minute,
	Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
		c.apply(chaos.Step{Do: chaos.Reboot, Node: f.Target})
		n := c.node(f.Target)
		n.PowerOff()
		c.Until(f, n.PowerOn)
		return nil
	},
}

// startIfOn starts a component, unless its node is switched off: it starts with the node.
func (c *Cluster) startIfOn(component *simulation.Component) {
	for _, n := range c.Nodes() {
		if n.Agent == component && n.IsOff() {
			return
		}
	}
	component.Start()
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
	if kind == reboot.Name {
		return &reboot
	}
	for i := range Faults {
		if Faults[i].Name == kind {
			return &Faults[i]
		}
	}
	return nil
}
