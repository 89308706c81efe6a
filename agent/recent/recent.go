// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package recent remembers what happened to objects lately, such as failures that delay the next attempt. There is a bound for
// each namespace, so that the objects of one don't displace what is known of others.
package recent

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// Values are values by key, of each namespace. Its methods can be called concurrently.
type Values[K comparable, V any] struct {
	most int
	hold time.Duration

	mu         sync.Mutex
	namespaces map[string]*values
}

// values are those of a namespace.
type values struct {
	kept   *lru.Cache
	newest time.Time
}

// New returns Values that keep the most recently used ones of each namespace. They can forget a namespace if nothing was put
// there for a time to hold them.
func New[K comparable, V any](most int, hold time.Duration) *Values[K, V] {
	return &Values[K, V]{most: most, hold: hold, namespaces: map[string]*values{}}
}

// Get returns a value, or a zero one.
func (r *Values[K, V]) Get(namespace string, key K) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	var value V
	if n := r.namespaces[namespace]; n != nil {
		kept, _ := n.kept.Get(key)
		value, _ = kept.(V)
	}
	return value
}

// Put remembers a value.
func (r *Values[K, V]) Put(namespace string, key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.namespaces, func(_ string, n *values) bool { return time.Since(n.newest) > r.hold })
	n := r.namespaces[namespace]
	if n == nil {
		n = &values{kept: lru.New(r.most)}
		r.namespaces[namespace] = n
	}
	n.newest = time.Now()
	n.kept.Add(key, value)
}

// Remove forgets a value.
func (r *Values[K, V]) Remove(namespace string, key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.namespaces[namespace]; n != nil {
		n.kept.Remove(key)
	}
}

// Clear forgets all values.
func (r *Values[K, V]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.namespaces)
}
