// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package apiserver is a Kubernetes API server in memory, behind [http.RoundTripper]. It has no sockets, so it can run in
// the virtual time of testing/synctest.
//
// Its handlers, its validation, and its managed fields are those of kube-apiserver: the packages k8s.io/apiserver and
// k8s.io/apiextensions-apiserver. This package has the parts that need etcd or a network there:
//
//   - store.go has the objects and their history, list.go and watch.go read them.
//   - definitions.go serves the resources of config/crd, builtin.go those of Kubernetes.
//   - collect.go has the controllers that clients depend on: garbage collection, deletion of namespaces, expiry of Events.
//   - transport.go is the client's side, with the faults.
//
// It doesn't have what can't be imported or isn't needed: validation of the kinds of Kubernetes except for their metadata,
// permissions, admission policies, and definitions that change. compare_test.go compares its answers with kube-apiserver's.
package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// firstVersion is the resource version of an empty server.
const firstVersion = 100

// Server is an API server. Its methods can be used concurrently.
type Server struct {
	handlers *handlers
	// WithoutWatchList makes the server refuse watches with initial events, like a server that doesn't have them. Set it
	// before the first request.
	WithoutWatchList bool
	// WithoutLeaseManagers makes the server track no managed fields of Leases that are created, like those of a Lease from which
	// a client removed them. Tracking is most of what a renewal costs. Set it before the first request.
	WithoutLeaseManagers bool
	// Access answers SubjectAccessReviews. If it is nil, everything is allowed. Set it before the first request.
	Access func(authorizationv1.SubjectAccessReviewSpec) bool

	// serial is held by each request that isn't a watch, for no virtual time: changes are observed in their order.
	serial sync.Mutex

	mu sync.Mutex // never held while anything waits
	state
	watchers  map[*watcher]bool
	observers []func(Event)
}

// Event is a committed change.
type Event struct {
	// Actor is the name of the transport that made the change.
	Actor string
	// Verb is "create", "update", or "delete".
	Verb     string
	Resource schema.GroupResource
	// Version is the resource version after the change.
	Version uint64
	// Before is nil for "create". After is nil for "delete". Don't change them.
	Before, After *unstructured.Unstructured

	change change
}

// New returns a server with the resources of config/crd, and with the resources of Kubernetes in builtin.go. It has the
// namespace "default".
func New() (*Server, error) {
	shared, err := sharedHandlers()
	if err != nil {
		return nil, err
	}
	s := &Server{handlers: shared, state: newState(), watchers: map[*watcher]bool{}}
	if err := s.Put(namespaceObject("default")); err != nil {
		return nil, err
	}
	return s, nil
}

// Observe calls observe with each change that is committed, in order, from the goroutine of the request. It must not wait,
// and must not send requests.
func (s *Server) Observe(observe func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, observe)
}

// Version returns the current resource version.
func (s *Server) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Resources returns the resources whose objects the server stores, in order.
func (s *Server) Resources() []schema.GroupResource {
	return slices.SortedFunc(maps.Keys(s.handlers.resources), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
}

// Get returns a copy of an object, or nil if it doesn't exist. Resource is such as "pods" or "xdpprograms.bpfman.io".
func (s *Server) Get(resource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.collection(s.prefixOf(resource)).objects[key(s.prefixOf(resource), namespace, name)]
	if o == nil {
		return nil
	}
	return toUnstructured(o.DeepCopyObject())
}

// List returns all objects of a resource, in the order of namespaces and names. Don't change them.
func (s *Server) List(resource string) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collection(s.prefixOf(resource))
	all := make([]*unstructured.Unstructured, 0, len(c.keys))
	for _, k := range c.keys {
		all = append(all, toUnstructured(c.objects[k].Object))
	}
	return all
}

// Put stores an object as it is, without validation, and with its status. It sets the resource version, and fills in the uid
// and the creation time if the object doesn't have them. It is for the objects that exist when a simulation starts, and for
// objects that another version of the API server has stored.
func (s *Server) Put(o runtime.Object) error {
	r, object, err := s.handlers.internalize(o)
	if err != nil {
		return fmt.Errorf("store %T: %w", o, err)
	}
	k := key(r.prefix, object.GetNamespace(), object.GetName())
	after, err := r.store(object.(runtime.Object)) //nolint:errcheck,forcetypeassert // all objects are both
	if err != nil {
		return fmt.Errorf("store %s: %w", k, err)
	}
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	before := s.collection(r.prefix).objects[k]
	e := s.commit("test", r, k, before, after)
	s.mu.Unlock()
	s.publish(e)
	return nil
}

// Snapshot is the content of a server at one time.
type Snapshot struct{ state }

// Snapshot returns the content of the server, like a backup of etcd.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{s.clone()}
}

// Restore replaces the content of the server, like a restore of etcd from a backup: resource versions go back, and are used
// again. It ends all watches. Clients aren't told.
func (s *Server) Restore(from *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = from.clone()
	s.endWatches()
}

// Compact forgets the history: to list or to watch from an earlier version fails with code 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.compacted = nil, s.version
}

// EndWatches ends all watches, as a restart of the API server does.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches()
}

func (s *Server) endWatches() {
	for w := range s.watchers {
		w.end()
	}
}

// publish calls the observers. The caller holds serial, which keeps the order.
func (s *Server) publish(events ...Event) {
	s.mu.Lock()
	observers := slices.Clone(s.observers)
	s.mu.Unlock()
	for _, e := range events {
		if len(observers) == 0 {
			return
		}
		if before := e.change.before; before != nil {
			e.Before = before.seen()
		}
		if after := e.change.after; after != nil {
			e.After = after.seen()
		}
		for _, observe := range observers {
			observe(e)
		}
	}
}
