// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// state is the content of etcd. Stored objects are never changed, so that copies of a state share them.
type state struct {
	version   uint64
	compacted uint64
	// collections are the objects of resources, by the prefix of their keys.
	collections map[string]*collection
	// log has the changes since compacted.
	log []change
}

// stored is an object, and how it is encoded in etcd: an update that doesn't change the encoded object isn't written. What is
// decoded can have more, by defaults.
type stored struct {
	runtime.Object
	encoded []byte
	written time.Time
	// observed is what observers see, once they have: the object after one write is the object before the next.
	observed *unstructured.Unstructured
}

// seen returns the object as observers see it. The caller holds serial.
func (o *stored) seen() *unstructured.Unstructured {
	if o.observed == nil {
		o.observed = toUnstructured(o.Object)
	}
	return o.observed
}

// collection has the objects of a resource, by key, and their keys in order.
type collection struct {
	objects map[string]*stored
	keys    []string
}

// change is one write. Before is nil for a creation, after for a deletion.
type change struct {
	version       uint64
	prefix, key   string
	before, after *stored
}

func newState() state {
	return state{version: firstVersion, compacted: firstVersion, collections: map[string]*collection{}}
}

func (s *state) clone() state {
	copied := *s
	copied.log = slices.Clone(s.log)
	copied.collections = map[string]*collection{}
	for prefix, c := range s.collections {
		copied.collections[prefix] = c.clone()
	}
	return copied
}

func (c *collection) clone() *collection {
	return &collection{objects: maps.Clone(c.objects), keys: slices.Clone(c.keys)}
}

func (c *collection) set(key string, o *stored) {
	at, exists := slices.BinarySearch(c.keys, key)
	switch {
	case o == nil && exists:
		c.keys = slices.Delete(c.keys, at, at+1)
		delete(c.objects, key)
	case o != nil:
		if !exists {
			c.keys = slices.Insert(c.keys, at, key)
		}
		c.objects[key] = o
	}
}

func (s *state) collection(prefix string) *collection {
	c := s.collections[prefix]
	if c == nil {
		c = &collection{objects: map[string]*stored{}}
		s.collections[prefix] = c
	}
	return c
}

// at returns a collection as it was at a version that isn't compacted.
func (s *state) at(prefix string, version uint64) *collection {
	c := s.collection(prefix)
	if version >= s.version {
		return c
	}
	c = c.clone()
	for i := len(s.log) - 1; i >= 0 && s.log[i].version > version; i-- {
		if s.log[i].prefix == prefix {
			c.set(s.log[i].key, s.log[i].before)
		}
	}
	return c
}

// commit writes an object, or deletes it if after is nil. The caller holds mu, and must not change after.
func (s *Server) commit(actor string, r *resource, key string, before, after *stored) Event {
	s.version++
	c := change{version: s.version, prefix: r.prefix, key: key, before: before, after: after}
	verb := "update"
	switch {
	case after == nil:
		verb = "delete"
	case before == nil:
		verb = "create"
	}
	if after != nil {
		setVersion(after.Object, s.version)
	}
	s.collection(r.prefix).set(key, after)
	s.log = append(s.log, c)
	for w := range s.watchers {
		w.add(c)
	}
	return Event{Actor: actor, Verb: verb, Resource: r.group, Version: s.version, change: c}
}

func setVersion(o runtime.Object, version uint64) {
	if err := versioner.UpdateObject(o, version); err != nil {
		panic(fmt.Sprintf("set the version of %T: %v", o, err))
	}
}

var versioner = storage.APIObjectVersioner{}

// resource is the storage of a resource. It implements [storage.Interface] for the server of a request's context, so that
// all servers of a process share their handlers, which take a second to make.
type resource struct {
	group     schema.GroupResource
	prefix    string
	newObject func() runtime.Object
	// custom resources have a codec; the kinds of Kubernetes are encoded as protobuf.
	custom bool
	codec  runtime.Codec
	// A resource of two groups is stored as that of one of them. These are nil for other resources.
	newStored            func() runtime.Object
	toStored, fromStored func(runtime.Object) runtime.Object
}

// show returns a copy of a stored object for a handler.
func (r *resource) show(o *stored) runtime.Object {
	copied := o.DeepCopyObject()
	if r.fromStored != nil {
		return r.fromStored(copied)
	}
	return copied
}

type serverKey struct{}

// caller is what a request's context says about it.
type caller struct {
	server *Server
	actor  string
	// asOf is the version that a stale server has, or 0.
	asOf uint64
}

func callerOf(ctx context.Context) caller {
	c, ok := ctx.Value(serverKey{}).(caller)
	if !ok {
		panic("a request without a server")
	}
	return c
}

func (*resource) Versioner() storage.Versioner                        { return versioner }
func (*resource) Stats(context.Context) (storage.Stats, error)        { return storage.Stats{}, nil }
func (*resource) ReadinessCheck() error                               { return nil }
func (*resource) RequestWatchProgress(context.Context) error          { return nil }
func (*resource) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (*resource) CompactRevision() int64                              { return 0 }
func (*resource) GetCurrentResourceVersion(c context.Context) (uint64, error) {
	return callerOf(c).server.Version(), nil
}

// Create implements [storage.Interface].
func (r *resource) Create(ctx context.Context, key string, o, out runtime.Object, _ uint64) error {
	if err := versioner.PrepareObjectForStorage(o); err != nil {
		return fmt.Errorf("prepare %s: %w", key, err)
	}
	after, err := r.store(o)
	if err != nil {
		return err
	}
	caller := callerOf(ctx)
	caller.server.mu.Lock()
	if caller.server.collection(r.prefix).objects[key] != nil {
		caller.server.mu.Unlock()
		return storage.NewKeyExistsError(key, 0)
	}
	e := caller.server.commit(caller.actor, r, key, nil, after)
	caller.server.mu.Unlock()
	caller.server.publish(e)
	return copyInto(out, r.show(after))
}

// Delete implements [storage.Interface].
func (r *resource) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	caller := callerOf(ctx)
	for {
		before := caller.server.current(r, key)
		if before == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		if preconditions != nil {
			if err := preconditions.Check(key, before.Object); err != nil {
				return err
			}
		}
		if err := validate(ctx, r.show(before)); err != nil {
			return err
		}
		e, done := caller.server.replace(caller.actor, r, key, before, nil)
		if done {
			caller.server.publish(e)
			last := r.show(before)
			setVersion(last, e.Version)
			return copyInto(out, last)
		}
	}
}

// Get implements [storage.Interface].
func (r *resource) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	o, err := r.read(callerOf(ctx), key, options.ResourceVersion)
	switch {
	case err != nil:
		return err
	case o != nil:
		return copyInto(out, r.show(o))
	case options.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
}

func (r *resource) read(caller caller, key, version string) (*stored, error) {
	caller.server.mu.Lock()
	defer caller.server.mu.Unlock()
	at, err := caller.server.readable(caller, version)
	if err != nil {
		return nil, err
	}
	return caller.server.at(r.prefix, at).objects[key], nil
}

// GuaranteedUpdate implements [storage.Interface].
func (r *resource) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	caller := callerOf(ctx)
	for {
		before := caller.server.current(r, key)
		if before == nil && !ignoreNotFound {
			return storage.NewKeyNotFoundError(key, 0)
		}
		after, err := r.updated(key, before, preconditions, update)
		if err != nil {
			return err
		}
		if before != nil && bytes.Equal(before.encoded, after.encoded) {
			return copyInto(out, r.show(before))
		}
		if e, done := caller.server.replace(caller.actor, r, key, before, after); done {
			caller.server.publish(e)
			return copyInto(out, r.show(after))
		}
	}
}

// updated returns what an update makes of an object, which can be nil.
func (r *resource) updated(key string, before *stored, preconditions *storage.Preconditions, update storage.UpdateFunc) (*stored, error) {
	from, version := r.newObject(), uint64(0)
	if before != nil {
		from, version = r.show(before), versionOf(before.Object)
	}
	if preconditions != nil {
		if err := preconditions.Check(key, from); err != nil {
			return nil, err
		}
	}
	to, _, err := update(from, storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	if err := versioner.PrepareObjectForStorage(to); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", key, err)
	}
	return r.store(to)
}

func (s *Server) current(r *resource, key string) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collection(r.prefix).objects[key]
}

// replace commits a change unless somebody else has changed the object.
func (s *Server) replace(actor string, r *resource, key string, before, after *stored) (Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collection(r.prefix).objects[key] != before {
		return Event{}, false
	}
	return s.commit(actor, r, key, before, after), true
}

func versionOf(o runtime.Object) uint64 {
	version, err := versioner.ObjectResourceVersion(o)
	if err != nil {
		panic(fmt.Sprintf("the version of %T: %v", o, err))
	}
	return version
}

// store encodes an object without a version, and decodes it as etcd would return it: for example, with the defaults of
// definitions, and without fractions of seconds.
func (r *resource) store(o runtime.Object) (*stored, error) {
	if r.codec != nil {
		content, err := runtime.Encode(r.codec, o)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", o, err)
		}
		decoded, err := runtime.Decode(r.codec, content)
		if err != nil {
			return nil, fmt.Errorf("decode %T: %w", o, err)
		}
		return &stored{Object: decoded, encoded: content, written: time.Now()}, nil
	}
	type message interface {
		runtime.Object
		Marshal() ([]byte, error)
		Unmarshal([]byte) error
	}
	newStored := r.newObject
	if r.toStored != nil {
		o, newStored = r.toStored(o), r.newStored
	}
	from, ok := o.(message)
	if !ok {
		return nil, fmt.Errorf("%T can't be encoded", o)
	}
	content, err := from.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	to := newStored().(message) //nolint:errcheck,forcetypeassert // it has the same type
	if err := to.Unmarshal(content); err != nil {
		return nil, fmt.Errorf("decode %T: %w", o, err)
	}
	return &stored{Object: to, encoded: content, written: time.Now()}, nil
}

// copyInto sets an object of a handler to one that nobody else has.
func copyInto(out, from runtime.Object) error {
	if out == nil {
		return nil
	}
	into, value := reflect.ValueOf(out).Elem(), reflect.ValueOf(from).Elem()
	if into.Type() != value.Type() {
		return fmt.Errorf("%T can't become %T", from, out)
	}
	into.Set(value)
	return nil
}

// Watch implements [storage.Interface].
func (r *resource) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	return callerOf(ctx).server.watch(ctx, r, key, options)
}
