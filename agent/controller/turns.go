// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"slices"
	"sync"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// turns is the order of the owners in the queue. Namespaces take turns, and each has a limited number of
// workers, so that a namespace doesn't wait for another one with many or large objects. The owners of a
// namespace are in the order in which they came. Cluster-scoped owners are one more namespace.
type turns struct {
	limit int // of workers for a namespace

	mu      sync.Mutex
	order   []string // namespaces with waiting owners, the next one first
	waiting map[string][]program.Key
	workers map[string]int
}

func newTurns(limit int) *turns {
	return &turns{limit: limit, waiting: map[string][]program.Key{}, workers: map[string]int{}}
}

// Touch has no effect: an owner keeps its place.
func (*turns) Touch(program.Key) {}

// Push adds an owner.
func (t *turns) Push(key program.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting[key.Namespace]) == 0 {
		t.order = append(t.order, key.Namespace)
	}
	t.waiting[key.Namespace] = append(t.waiting[key.Namespace], key)
}

// Len returns the number of owners of namespaces that can have another worker.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for namespace, keys := range t.waiting {
		if t.free(namespace) {
			n += len(keys)
		}
	}
	return n
}

// Pop gives the next owner to a worker, until end is called for it. Len must not be 0.
func (t *turns) Pop() program.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.order, t.free)
	namespace := t.order[at]
	t.order = slices.Delete(t.order, at, at+1)
	keys := t.waiting[namespace]
	if t.waiting[namespace] = keys[1:]; len(keys) > 1 {
		t.order = append(t.order, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.workers[namespace]++
	return keys[0]
}

// end takes an owner back from a worker, which then calls Get of the queue. So no other worker needs to be woken.
func (t *turns) end(key program.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.workers[key.Namespace]--; t.workers[key.Namespace] == 0 {
		delete(t.workers, key.Namespace)
	}
}

func (t *turns) free(namespace string) bool { return t.workers[namespace] < t.limit }
