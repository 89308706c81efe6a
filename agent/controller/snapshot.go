// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/breaker"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// moment is a position in the order of events and reads on this node. A read that began at the moment of an event, or later,
// sees what the event is about. The wall clock can't tell that: several events can have the same time.
type moment uint64

// moments counts events. The zero value is ready to use.
type moments struct{ last atomic.Uint64 }

// event returns the moment of an event that has just happened.
func (m *moments) event() moment { return moment(m.last.Add(1)) }

// now returns the moment of a read that begins now.
func (m *moments) now() moment { return moment(m.last.Load()) }

// snapshot is a part of the node's state as it was last read, which plans share. Without it, an event that concerns fifty
// objects would be followed by fifty equal reads.
type snapshot[T any] struct {
	// what names the read, and who answers, in errors.
	what    string
	moments *moments
	// read reads the state. Its context has a deadline.
	read func(context.Context) (T, error)
	// changed is called after each successful read, with the state before. A read can be caused by an event about one owner,
	// and show what concerns others.
	changed func(ctx context.Context, before, now T, began moment)
	// service is for those who ask with inTurn.
	service breaker.Breaker

	mu      sync.Mutex
	last    *reading[T] // the last successful one, or nil
	running *reading[T]
	// again has an element if an event asked for a read that hasn't begun yet.
	again chan struct{}
}

// reading is a read, whose result doesn't change after done is closed.
type reading[T any] struct {
	began, ended moment
	// waiting is the number of those who wait for it. stop ends it when nobody does anymore.
	waiting int
	stop    context.CancelFunc
	done    chan struct{}
	value   T
	err     error
}

// readDeadline is the deadline of a read. It is before that of those who wait for it, who then say why it fails.
const readDeadline = runtimeDeadline - time.Second

func newSnapshot[T any](what string, m *moments, read func(context.Context) (T, error), changed func(context.Context, T, T, moment)) *snapshot[T] {
	return &snapshot[T]{what: what, moments: m, read: read, changed: changed, again: make(chan struct{}, 1)}
}

// inTurn is get for a read that waits for a service. It fails immediately while the service doesn't respond, unless the last
// reading is recent enough. That one says nothing about the service, so it is none of its responses.
func (s *snapshot[T]) inTurn(ctx context.Context, asked moment) (r *reading[T], err error) {
	if last := s.latest(); last != nil && last.began >= asked {
		return last, nil
	}
	err = s.service.Do(func() error {
		r, err = s.get(ctx, asked)
		return err
	})
	return r, err
}

// get returns a successful reading that began at a moment or later. It reads if there is none, and fails with this read. A
// read in progress that began earlier ends first, so that one read answers all that asked in the meantime. Callers must not
// change the value.
func (s *snapshot[T]) get(ctx context.Context, asked moment) (*reading[T], error) {
	for {
		s.mu.Lock()
		if s.last != nil && s.last.began >= asked {
			defer s.mu.Unlock()
			return s.last, nil
		}
		running := s.running
		if running == nil {
			running = &reading[T]{began: s.moments.now(), done: make(chan struct{})}
			s.running = running
			read, stop := context.WithTimeout(context.WithoutCancel(ctx), readDeadline) //nolint:gosec // run calls it
			running.stop = stop
			go s.run(read, running)
		}
		running.waiting++
		s.mu.Unlock()
		select {
		case <-running.done:
		case <-ctx.Done():
			s.leave(running)
			return nil, problem.Errorf(problem.ContainerRuntimeFails, "%s hasn't answered earlier requests: %w", s.what, ctx.Err()) // a cause would look like an answer
		}
		if running.began >= asked {
			return running, running.err
		}
	}
}

// leave ends a reading if nobody else waits for it.
func (s *snapshot[T]) leave(r *reading[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiting--; r.waiting > 0 {
		return
	}
	r.stop()
	if s.running == r {
		s.running = nil
	}
}

// run reads the state.
func (s *snapshot[T]) run(ctx context.Context, r *reading[T]) {
	defer r.stop()
	r.value, r.err = s.try(ctx)
	r.ended = s.moments.event()
	s.mu.Lock()
	before := s.last
	if s.running == r {
		s.running = nil
	}
	newer := r.err == nil && (before == nil || before.began <= r.began)
	if newer {
		s.last = r
	}
	s.mu.Unlock()
	close(r.done)
	if !newer {
		return
	}
	var was T
	if before != nil {
		was = before.value
	}
	s.changed(context.WithoutCancel(ctx), was, r.value, r.began)
}

// try converts a panic to an error, as safely does: what is read was written by others.
func (s *snapshot[T]) try(ctx context.Context) (value T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = problem.Errorf(problem.AnswerNotExpected, "%s gave an answer that the agent fails to read: %v", s.what, cause)
			logr.FromContextOrDiscard(ctx).Error(err, "Recovered from a panic", "stack", string(debug.Stack()))
		}
	}()
	return s.read(ctx)
}

// latest returns the last successful reading, or nil.
func (s *snapshot[T]) latest() *reading[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// refresh has the state read after an event. It doesn't wait.
func (s *snapshot[T]) refresh() {
	select {
	case s.again <- struct{}{}:
	default: // it is to be read anyway
	}
}

// follow reads the state after events, with a function that is called once for all that have happened until then, until ctx
// ends.
func (s *snapshot[T]) follow(ctx context.Context, read func(context.Context, moment)) {
	for {
		select {
		case <-s.again:
			read(ctx, s.moments.event())
		case <-ctx.Done():
			return
		}
	}
}
