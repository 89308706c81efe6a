// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/agent/interrupt"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Limits for each namespace, so that the objects of one don't take the memory or the places of others.
const (
	// maxReading is the maximum number of reads in progress, of those from slow registries, and of the others. There are
	// fewer places for processes.
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
	// image is what the question was about.
	image Image
	// namespaces are those of the owners that have waited for it, the one that started it first.
	namespaces []string
	speed      speed
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

// speed is whether a registry is slow, or when it is known, that it isn't. Each has its own limits, so that those of a
// namespace that are slow don't delay its others.
type speed int

const (
	fast speed = iota
	slow
	speeds
)

// runs are the reads in progress, and the results of others. A read in progress is never forgotten, so that the same isn't
// read twice at a time.
type runs struct {
	// shared is called when another namespace waits for a read in progress.
	shared func()

	mu         sync.Mutex
	byKey      map[string]*run
	namespaces map[string]*namespaceRuns
}

// namespaceRuns are the runs that the objects of a namespace have started.
type namespaceRuns struct {
	reading [speeds]int
	waiting [speeds][]waiter
	done    []*run // the oldest first
}

// waiter is an owner that waits for being able to start a run about an image.
type waiter struct {
	owner program.Key
	image Image
	since time.Time
	later func()
	// told is when the owner was told that there is a place, which is kept for it for a while. It is zero before.
	told time.Time
}

func newRuns(shared func()) *runs {
	return &runs{shared: shared, byKey: map[string]*run{}, namespaces: map[string]*namespaceRuns{}}
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
// unless it is nil, when it makes sense to ask again. It starts the wanted run with read if there is none that the question
// can use, and if the owner's namespace doesn't have too many of its speed.
func (s *runs) join(ctx context.Context, owner program.Key, wanted *run, read func(context.Context) (Bytecode, error), later func()) (done *run, since time.Time) {
	var told []func()
	defer func() { tellAll(told) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, r := s.of(owner.Namespace), s.byKey[wanted.key]
	w := waiter{owner: owner, image: wanted.image, since: time.Now(), later: later}
	switch {
	case r != nil && r.use():
		if told = n.leave(w); r.done {
			return r, time.Time{}
		}
		if !slices.Contains(r.namespaces, owner.Namespace) {
			r.namespaces = append(r.namespaces, owner.Namespace)
			told = append(told, s.shared)
		}
	case n.free(wanted.speed, w) <= 0:
		return nil, n.wait(wanted.speed, w)
	default:
		told = n.leave(w)
		r = wanted
		r.started, r.namespaces, r.waiting, r.later = time.Now(), []string{owner.Namespace}, 1, map[program.Key]func(){}
		s.byKey[r.key] = r
		n.reading[r.speed]++
		go func() {
			found, err := read(interrupt.Without(ctx)) // others wait for it too
			tellAll(s.end(r, found, err))
		}()
	}
	if later != nil && len(r.later) < maxWaiting {
		r.later[owner] = later
	}
	return nil, r.started
}

// leave ends the wait of an owner that has its answer about an image.
func (s *runs) leave(owner program.Key, image Image) {
	s.mu.Lock()
	var told []func()
	if n := s.namespaces[owner.Namespace]; n != nil {
		told = n.leave(waiter{owner: owner, image: image})
	}
	s.mu.Unlock()
	tellAll(told)
}

func tellAll(told []func()) {
	for _, tell := range told {
		tell()
	}
}

// is reports whether two waiters are the same one.
func (w waiter) is(other waiter) bool { return w.owner == other.owner && w.image == other.image }

// free returns the number of places that an owner can take. It doesn't count those that are kept for others.
func (n *namespaceRuns) free(speed speed, w waiter) int {
	n.waiting[speed] = slices.DeleteFunc(n.waiting[speed], waiter.expired)
	free := maxReading - n.reading[speed]
	for _, other := range n.waiting[speed] {
		if !other.told.IsZero() && !other.is(w) {
			free--
		}
	}
	return free
}

// expired reports whether an owner that was told hasn't come, for example because its object was deleted.
func (w waiter) expired() bool { return !w.told.IsZero() && time.Since(w.told) > holds }

// wait has an owner wait for a place, unless it does already, and returns since when it does.
func (n *namespaceRuns) wait(speed speed, w waiter) time.Time {
	i := slices.IndexFunc(n.waiting[speed], w.is)
	if i >= 0 {
		n.waiting[speed][i].told = time.Time{} // a read from a registry that is slow took its place
		return n.waiting[speed][i].since
	}
	if w.later != nil && len(n.waiting[speed]) < maxWaiting {
		n.waiting[speed] = append(n.waiting[speed], w)
	}
	return w.since
}

// leave ends the wait of an owner, if it waits, and returns how to tell those for whom there is a place now. It may wait at the
// other speed, because its registry became slow in the meantime.
func (n *namespaceRuns) leave(w waiter) []func() {
	var tell []func()
	for speed := range speeds {
		if i := slices.IndexFunc(n.waiting[speed], w.is); i >= 0 {
			n.waiting[speed] = slices.Delete(n.waiting[speed], i, i+1)
			tell = append(tell, n.next(speed)...)
		}
	}
	return tell
}

// next keeps places that are free now for those who have waited for the longest time, and returns how to tell them.
func (n *namespaceRuns) next(speed speed) []func() {
	var tell []func()
	free := n.free(speed, waiter{})
	for i := range n.waiting[speed] {
		if w := &n.waiting[speed][i]; free > 0 && w.told.IsZero() {
			tell = append(tell, w.later)
			w.told = time.Now()
			free--
		}
	}
	return tell
}

// waitFor returns the namespaces whose objects wait for a run.
func (s *runs) waitFor(r *run) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.namespaces
}

// slow makes a run one from a slow registry. It returns false if its namespace has too many.
func (s *runs) slow(r *run) bool {
	s.mu.Lock()
	n := s.of(r.namespaces[0])
	if r.speed == slow || n.reading[slow] >= maxReading {
		s.mu.Unlock()
		return r.speed == slow
	}
	r.speed = slow
	n.reading[fast]--
	n.reading[slow]++
	told := n.next(fast)
	s.mu.Unlock()
	tellAll(told)
	return true
}

// end sets the result of a run, and returns how to tell those who wait for it, or for its place. If the run gave way to
// others, those who wait for it wait for a place.
func (s *runs) end(r *run, found Bytecode, err error) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.of(r.namespaces[0])
	n.reading[r.speed]--
	tell := n.next(r.speed)
	for owner, later := range r.later {
		if errors.Is(err, errCrowded) {
			others := s.of(owner.Namespace)
			others.wait(slow, waiter{owner: owner, image: r.image, since: r.started, later: later})
			tell = append(tell, others.next(slow)...)
		} else {
			tell = append(tell, later)
		}
	}
	found.Object = reader.Object{} // the store has it
	r.later, r.found, r.err, r.done, r.until = nil, found, err, true, time.Now().Add(holds)
	if errors.Is(err, errCrowded) {
		delete(s.byKey, r.key)
	} else {
		n.done = append(n.done, r)
	}
	s.forget()
	return tell
}

// forget removes results that are too old, or too many for their namespaces.
func (s *runs) forget() {
	for name, n := range s.namespaces {
		for speed := range n.waiting {
			n.waiting[speed] = slices.DeleteFunc(n.waiting[speed], waiter.expired)
		}
		for len(n.done) > 0 && (len(n.done) > maxResults || time.Now().After(n.done[0].until)) {
			if old := n.done[0]; s.byKey[old.key] == old {
				delete(s.byKey, old.key)
			}
			n.done = slices.Delete(n.done, 0, 1)
		}
		if n.reading == [speeds]int{} && len(n.done)+len(n.waiting[fast])+len(n.waiting[slow]) == 0 {
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
