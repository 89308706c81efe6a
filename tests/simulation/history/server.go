// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// serverFaults are those of the API server, its etcd, and the network to it.
var serverFaults = []FaultKind{
	{
		Name: "somebody else's write", Requests: true, Before: true,
		Begin: func(_ context.Context, c *Cluster, _ Fault, e simulation.Event) error {
			c.touch(e)
			return nil
		},
	},
	{
		Name: "somebody else's writes of a kind", Server: true, Targets: resources, Shortest: time.Second, Longest: 2 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.during(f, func(_ context.Context, e simulation.Event, _ <-chan struct{}) error {
				if e.Resource == f.Target {
					c.touch(e)
				}
				return nil
			})
			return nil
		},
	},
	answer("too many requests", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
	answer("an internal error", http.StatusInternalServerError, metav1.StatusReasonInternalError),
	answer("an unavailable service", http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
	refusal("too many requests for a kind", "", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
	refusal("errors for a kind", "", http.StatusInternalServerError, metav1.StatusReasonInternalError),
	refusal("a kind that is forbidden", "", http.StatusForbidden, metav1.StatusReasonForbidden),
	refusal("a quota that is full", "create", http.StatusForbidden, metav1.StatusReasonForbidden),
	{
		Name: "silence of the API server", Server: true, Targets: nobody, Shortest: 30 * time.Second, Longest: 2 * time.Hour,
		Begin: network(simulation.Silent),
	},
	{
		Name: "an API server that is down", Server: true, Targets: nobody, Shortest: time.Second, Longest: 2 * time.Hour,
		Begin: network(simulation.Refusing),
	},
	{
		Name: "a restart of the API server, which forgets what it sent", Server: true, Targets: nobody,
		Begin: func(_ context.Context, c *Cluster, _ Fault, _ simulation.Event) error {
			c.API.Compact()
			c.API.EndWatches()
			return nil
		},
	},
	{
		Name: "watches that end", Server: true, Targets: nobody,
		Begin: func(_ context.Context, c *Cluster, _ Fault, _ simulation.Event) error {
			c.API.EndWatches()
			return nil
		},
	},
	{
		Name: "a kind that is listed late", Server: true, Targets: resources, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			c.during(f, func(ctx context.Context, e simulation.Event, ended <-chan struct{}) error {
				if reads(e, f.Target) && !e.Done && !e.Delivered {
					return until(ctx, ended)
				}
				return nil
			})
			return nil
		},
	},
	{
		// An API server is behind: it lists what was there at the beginning, and what changes since then arrives at the end.
		Name: "a kind from the past", Server: true, Targets: resources, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			past := c.API.Version()
			c.during(f, func(ctx context.Context, e simulation.Event, ended <-chan struct{}) error {
				switch {
				case !reads(e, f.Target):
				case e.Delivered:
					return until(ctx, ended)
				case !e.Done && e.Request.CanBeStale():
					e.Request.AsOf = past
				}
				return nil
			})
			return nil
		},
	},
	{
		Name: "a restore of etcd from a backup, after which everything restarts", Server: true, Targets: nobody, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			backup := c.API.Snapshot()
			c.Until(f, func() { c.later(func() { c.restore(backup) }) })
			return nil
		},
	},
}

// touch changes the object that a component is about to update, which conflicts with the update if that is of a version. A conflict
// for which nothing was written would be a lie: components wait for the version that they conflicted with.
func (c *Cluster) touch(e simulation.Event) {
	if e.Done || e.Name == "" || e.Verb != "update" && e.Verb != "patch" {
		return
	}
	group := schema.GroupResource{Group: e.Request.APIGroup, Resource: e.Resource}
	if o := c.API.Get(group.String(), e.Namespace, e.Name); o != nil {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["simulation/touched"] = strconv.FormatUint(c.API.Version(), 10)
		o.SetAnnotations(annotations)
		c.must(c.API.Put(o))
	}
}

// answer is a fault in which the API server refuses a request.
func answer(name string, code int32, reason metav1.StatusReason) FaultKind {
	return FaultKind{Name: name, Requests: true, Before: true, Begin: func(ctx context.Context, _ *Cluster, _ Fault, e simulation.Event) error {
		return simulation.Answer(code, reason, 0)(ctx, e)
	}}
}

// refusal is a fault in which the API server refuses requests for a resource, all or those with a verb, for a while.
func refusal(name, verb string, code int32, reason metav1.StatusReason) FaultKind {
	return FaultKind{
		Name: name, Server: true, Targets: resources, Shortest: time.Second, Longest: 10 * time.Minute,
		Begin: func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
			refuse := simulation.Each(simulation.Match{Resource: f.Target, Verb: verb}, simulation.Answer(code, reason, 0))
			c.during(f, func(ctx context.Context, e simulation.Event, _ <-chan struct{}) error { return refuse(ctx, e) })
			return nil
		},
	}
}

func network(reach simulation.Reach) func(context.Context, *Cluster, Fault, simulation.Event) error {
	return func(_ context.Context, c *Cluster, f Fault, _ simulation.Event) error {
		c.Until(f, func() { c.Network.Set(simulation.Up) })
		c.Network.Set(reach)
		return nil
	}
}

func reads(e simulation.Event, resource string) bool {
	return e.Resource == resource && (e.Verb == "list" || e.Verb == "watch")
}

// during calls a hook, which gets a channel that is closed when the fault ends, until then.
func (c *Cluster) during(f Fault, hook func(context.Context, simulation.Event, <-chan struct{}) error) {
	ended := make(chan struct{})
	remove := c.OnEvent(func(ctx context.Context, e simulation.Event) error { return hook(ctx, e, ended) })
	c.Until(f, func() {
		remove()
		close(ended)
	})
}

// until waits for the end of a fault.
func until(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
