// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// Limits for each namespace, so that the objects of one don't take the memory or the places of others.
const (
	// maxReading is the maximum number of reads in progress. There are fewer places for processes.
	maxReading = 32
	// maxResults is the maximum number of results in memory.
	maxResults = 512
	// maxWaiting is the maximum number of objects that are told when they can start a read, and of those that are told when
	// one read is done. Others find out when they ask again.
	maxWaiting = 1024
	// holds is how long the result of a read is used: for those who waited for it, and
	// for everybody if signatures are missing, because some can be added. Objects and
	// complete findings are stored without a limit.
	holds = 10 * time.Second
)

// run is a read, in progress or completed.
type run struct {
	key     string
	started time.Time
	// waiting is how many questions wait for the result, and later has the owners that are told when it is there.
	waiting int
	later   map[program.Key]func()
	// lasting means that the result is also for questions that didn't wait for it.
	lasting bool
	// done means that the fields below are set.
	done  bool
	until time.Time
	found Bytecode
	err   error
}

// runs are the reads in progress, and the results of others. A read in progress is never forgotten, so that the same isn't
// read twice at a time.
type runs struct {
	mu         sync.Mutex
	byKey      map[string]*run
	namespaces map[string]*namespaceRuns
}

// namespaceRuns are the runs that the objects of a namespace have started.
type namespaceRuns struct {
	reading int
	done    []*run // the oldest first
	waiting []waiter
}

// waiter is an owner that waits for being able to start a run.
type waiter struct {
	owner program.Key
	since time.Time
	later func()
}

func newRuns() *runs {
	return &runs{byKey: map[string]*run{}, namespaces: map[string]*namespaceRuns{}}
}

// of returns the runs of a namespace.
func (s *runs) of(namespace string) *namespaceRuns {
	n := s.namespaces[namespace]
	if n == nil {
		n = &namespaceRuns{}
		s.namespaces[namespace] = n
	}
	return n
}

// join returns the run with a key if it is done. Otherwise, it returns since when the owner waits for it, and calls later,
// unless it is nil, when it makes sense to ask again. It starts a run with read if there is none that the question can use,
// and if the owner's namespace doesn't have too many.
func (s *runs) join(ctx context.Context, owner program.Key, wanted *run, read func(context.Context) (Bytecode, error), later func()) (done *run, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byKey[wanted.key]
	switch {
	case r != nil && r.use():
		if r.done {
			return r, time.Time{}
		}
	case s.of(owner.Namespace).reading >= maxReading:
		return nil, s.of(owner.Namespace).wait(owner, later)
	default:
		r = wanted
		r.started, r.waiting, r.later = time.Now(), 1, map[program.Key]func(){}
		s.byKey[r.key] = r
		s.of(owner.Namespace).reading++
		go func() {
			found, err := read(ctx)
			for _, tell := range s.end(owner.Namespace, r, found, err) {
				tell()
			}
		}()
	}
	if later != nil && len(r.later) < maxWaiting {
		r.later[owner] = later
	}
	return nil, r.started
}

// wait remembers that an owner waits, and returns since when.
func (n *namespaceRuns) wait(owner program.Key, later func()) time.Time {
	i := slices.IndexFunc(n.waiting, func(w waiter) bool { return w.owner == owner })
	if i >= 0 {
		return n.waiting[i].since
	}
	if later != nil && len(n.waiting) < maxWaiting {
		n.waiting = append(n.waiting, waiter{owner, time.Now(), later})
	}
	return time.Now()
}

// end sets the result of a run, and returns whom to tell: those who wait for it, and those who can start another one.
func (s *runs) end(namespace string, r *run, found Bytecode, err error) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	found.Object.Functions, found.Object.Maps, found.Object.Helpers, found.Object.MapTypes = nil, nil, nil, nil // the store has them
	r.found, r.err, r.done, r.until = found, err, true, time.Now().Add(holds)
	tell := slices.Collect(maps.Values(r.later))
	r.later = nil
	n := s.of(namespace)
	n.reading--
	n.done = append(n.done, r)
	next := min(maxReading-n.reading, len(n.waiting))
	for _, w := range n.waiting[:next] {
		tell = append(tell, w.later)
	}
	n.waiting = slices.Delete(n.waiting, 0, next)
	s.forget()
	return tell
}

// forget removes results that are too old, or too many for their namespaces.
func (s *runs) forget() {
	for name, n := range s.namespaces {
		for len(n.done) > 0 && (len(n.done) > maxResults || time.Now().After(n.done[0].until)) {
			if old := n.done[0]; s.byKey[old.key] == old {
				delete(s.byKey, old.key)
			}
			n.done = slices.Delete(n.done, 0, 1)
		}
		if n.reading == 0 && len(n.done) == 0 && len(n.waiting) == 0 {
			delete(s.namespaces, name)
		}
	}
}

// discard forgets a run whose result can't be used anymore.
func (s *runs) discard(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[r.key] == r {
		delete(s.byKey, r.key)
	}
}

// use reports whether a question can use the run, and counts it. An error, or what a tag was resolved to, is only for those
// who waited.
func (r *run) use() bool {
	if !r.done {
		r.waiting++
		return true
	}
	r.waiting--
	return time.Now().Before(r.until) && (r.waiting >= 0 || r.lasting && r.err == nil)
}
