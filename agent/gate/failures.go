// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"cmp"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
)

const (
	// The shortest and the longest time after which an image that couldn't be read is read again.
	firstReread = 200 * time.Millisecond
	lastReread  = 30 * time.Second
	// maxFailures is the maximum number of failed reads that are known of each namespace.
	maxFailures = 1024
	// forgetAfter is the time after which the failures of a namespace without new ones are forgotten.
	forgetAfter = 10 * time.Minute
)

// failures delays reads of images that failed, more after each one. An owner is also queued by events that say nothing about
// its image, such as a new interface of the node: registries would be asked each time.
type failures struct {
	mu         sync.Mutex
	namespaces map[string]*namespaceFailures
}

// namespaceFailures are the failures of a namespace's objects, so that those of one namespace don't displace others.
type namespaceFailures struct {
	kept   *lru.Cache // failure by reading
	newest time.Time
}

func newFailures() *failures { return &failures{namespaces: map[string]*namespaceFailures{}} }

// reading identifies what an owner reads. When it changes, the image is read immediately.
type reading struct {
	owner      program.Key
	uid        types.UID
	generation int64
	image      bytecode.Image
	object     bool
}

// failure is the last result of a read.
type failure struct {
	found bytecode.Bytecode
	err   error
	delay time.Duration
	until time.Time
}

// try calls read, unless it failed recently. In that case, and while the image is read again, it returns the same result. So
// a PendingError is about an image that hasn't failed.
func (f *failures) try(id reading, read func() (bytecode.Bytecode, error)) (bytecode.Bytecode, error) {
	last := f.last(id)
	if time.Now().Before(last.until) {
		return last.found, last.err
	}
	found, err := read()
	switch pending := (*bytecode.PendingError)(nil); {
	case err == nil:
		f.forget(id)
	case !errors.As(err, &pending):
		delay := min(cmp.Or(2*last.delay, firstReread), lastReread)
		f.keep(id, failure{found, err, delay, time.Now().Add(delay)})
	case last.err != nil:
		return last.found, last.err
	}
	return found, err
}

// last returns the last failure of a read, or a zero one.
func (f *failures) last(id reading) (last failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.namespaces[id.owner.Namespace]; n != nil {
		kept, _ := n.kept.Get(id)
		last, _ = kept.(failure)
	}
	return last
}

func (f *failures) keep(id reading, failed failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.namespaces, func(_ string, n *namespaceFailures) bool { return time.Since(n.newest) > forgetAfter })
	n := f.namespaces[id.owner.Namespace]
	if n == nil {
		n = &namespaceFailures{kept: lru.New(maxFailures)}
		f.namespaces[id.owner.Namespace] = n
	}
	n.newest = time.Now()
	n.kept.Add(id, failed)
}

func (f *failures) forget(id reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.namespaces[id.owner.Namespace]; n != nil {
		n.kept.Remove(id)
	}
}
