// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// ResourceDaemon is the resource of events that are calls of a node's daemon.
const ResourceDaemon = "daemon"

// Event is what a component does outside of its process: a request to the API server, or a call of its node's daemon. There
// is one before it takes effect, and one after that. A watch also has one for each part that arrives.
type Event struct {
	// Actor is the name of the component.
	Actor string
	// Verb is a verb of RBAC, such as list, or the name of a call, such as Attach.
	Verb string
	// Resource is such as bpfprograms, or ResourceDaemon. Subresource, Namespace and Name are "" for calls. Requests for something
	// else than a resource have the path as their name, and no resource.
	Resource, Subresource, Namespace, Name string
	// Call is the request of a call.
	Call proto.Message
	// Request is the request to the API server. A hook can make it read the past: see [apiserver.Request.AsOf].
	Request *apiserver.Request
	// Done means that it has taken effect, and that its answer isn't on its way yet.
	Done bool
	// Delivered means that a part of a watch is about to arrive.
	Delivered bool
}

func (e Event) String() string {
	when := "before"
	if e.Done {
		when = "after"
	}
	what := strings.Trim(strings.Join([]string{e.Resource, e.Namespace, e.Name, e.Subresource}, "/"), "/")
	return fmt.Sprintf("%s %s: %s %s", when, e.Actor, e.Verb, what)
}

// Writes reports whether the event changes something outside of the process.
func (e Event) Writes() bool {
	return !slices.Contains([]string{"get", "list", "watch", "List", "Get", ""}, e.Verb)
}

// Hook is called at each event. It can take time, and cause any fault, including a crash of the component whose event it is. If
// it returns an error, the component gets that instead of the answer: an error of k8s.io/apimachinery/pkg/api/errors as the response of the API
// server, a status of gRPC as the daemon's, and other errors as those of the connection. Before the event, an error also
// prevents the effect.
type Hook func(context.Context, Event) error

// events calls hooks. The zero value is ready to use.
type events struct {
	mu    sync.Mutex
	last  int
	hooks map[int]Hook
}

// OnEvent has a hook called at each event until remove is called. Hooks are called in the order in which they were added, until
// one returns an error.
func (w *World) OnEvent(h Hook) (remove func()) {
	e := &w.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hooks == nil {
		e.hooks = map[int]Hook{}
	}
	e.last++
	id := e.last
	e.hooks[id] = h
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.hooks, id)
	}
}

func (e *events) happen(ctx context.Context, event Event) error {
	e.mu.Lock()
	ids := sets.List(sets.KeySet(e.hooks))
	hooks := make([]Hook, 0, len(ids))
	for _, id := range ids {
		hooks = append(hooks, e.hooks[id])
	}
	e.mu.Unlock()
	for _, hook := range hooks {
		if err := hook(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

var requests = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// requestEvent returns the event of a request.
func requestEvent(actor string, q *apiserver.Request) Event {
	if !q.IsResourceRequest {
		return Event{Actor: actor, Verb: q.Verb, Name: q.Path, Request: q}
	}
	return Event{Actor: actor, Verb: q.Verb, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Request: q}
}
