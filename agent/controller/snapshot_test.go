// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// state is something to read, which takes a second.
type state struct {
	mu     sync.Mutex
	is     int
	err    error
	reads  int
	silent bool
}

func (s *state) read(ctx context.Context) (int, error) {
	s.mu.Lock()
	s.reads++
	is, err, silent := s.is, s.err, s.silent
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	<-time.After(time.Second)
	return is, err
}

// begun returns how many reads have begun.
func (s *state) begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *state) set(is int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is, s.err = is, err
}

// All that ask for the state after an event share one read. A read that began before an event doesn't answer those that ask
// because of it, and one that failed answers only those that waited for it.
func TestOneReadForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m moments
		changes := make(chan string, 10)
		of := &state{is: 1}
		s := newSnapshot("read", &m, of.read, func(_ context.Context, before, now int, _ moment) {
			changes <- fmt.Sprintf("%d to %d", before, now)
		})
		ask := func(at moment, askers int) []string {
			answers := make([]string, askers)
			var group sync.WaitGroup
			for n := range askers {
				group.Go(func() {
					got, err := s.get(t.Context(), at)
					if answers[n] = fmt.Sprint(err); err == nil {
						answers[n] = fmt.Sprint(got.value)
					}
				})
			}
			group.Wait()
			slices.Sort(answers)
			return slices.Compact(answers)
		}
		expect := func(what string, got []string, want string, reads int) {
			t.Helper()
			synctest.Wait()
			if begun := of.begun(); len(got) != 1 || got[0] != want || begun != reads {
				t.Errorf("%s: %q after %d reads, want %s after %d", what, got, begun, want, reads)
			}
		}
		first := m.event()
		expect("an event", ask(first, 50), "1", 1)
		expect("the same event, later", ask(first, 50), "1", 1)
		expect("no event", ask(0, 1), "1", 1)

		second := m.event()
		go ask(second, 1)
		synctest.Wait() // its read has begun
		of.set(2, nil)
		expect("an event during a read", ask(m.event(), 50), "2", 3)

		of.set(0, errors.New("refused"))
		third := m.event()
		expect("a read that fails", ask(third, 50), "refused", 4)
		expect("what was read before", ask(second, 1), "2", 4)
		of.set(3, nil)
		expect("the same event again", ask(third, 50), "3", 5)
		for _, want := range []string{"0 to 1", "1 to 1", "1 to 2", "2 to 3"} {
			if got := <-changes; got != want {
				t.Errorf("changed from %s, want %s", got, want)
			}
		}
	})
}

// Who gives up doesn't end a read that others wait for. If nobody waits, it ends.
func TestReadsEndWithThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m moments
		of := &state{silent: true}
		s := newSnapshot("read", &m, of.read, func(context.Context, int, int, moment) {})
		get := func(limit time.Duration) <-chan error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			failed := make(chan error, 1)
			go func() {
				defer cancel()
				_, err := s.get(ctx, 1)
				failed <- err
			}()
			return failed
		}
		m.event()
		short, long := get(time.Second), get(time.Hour)
		start := time.Now()
		if err := <-short; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if err := <-long; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != readDeadline || of.begun() != 1 {
			t.Errorf("after %s and %d reads: %v", time.Since(start), of.begun(), err)
		}
		if err := <-get(time.Second); err == nil {
			t.Error("read without an answer")
		}
		synctest.Wait()
		of.mu.Lock()
		of.silent = false
		of.mu.Unlock()
		if err := <-get(2 * time.Second); err != nil || of.begun() != 3 {
			t.Errorf("after another read: %v, %d reads", err, of.begun())
		}
	})
}

// An owner asks for everything that its events ask for.
func TestAsks(t *testing.T) {
	key := program.Key{Name: "stats"}
	var a asks
	if s := a.take(key); s != nil {
		t.Errorf("asks for %+v without an event", *s)
	}
	a.add(key, since{containers: 3})
	a.add(key, sinceAll(2))
	a.add(program.Key{Name: "other"}, sinceAll(9))
	if s := a.take(key); s == nil || *s != (since{2, 3, 2}) {
		t.Errorf("asks for %+v", s)
	}
	if s := a.take(key); s != nil {
		t.Errorf("asks for %+v again", *s)
	}
}

// A caller that a rollback interrupts has no answer of the container runtime, so the others don't wait for it again.
func TestInterruptIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &facts{}
		f.containers = newSnapshot("the runtime", &f.moments, func(ctx context.Context) ([]program.Container, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, func(context.Context, []program.Container, []program.Container, moment) {})
		if _, err := f.running(t.Context(), nil, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		<-time.After(time.Minute) // the next one asks again
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { interrupt(errRollback) })
		if _, err := f.running(ctx, nil, false); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		began := time.Now()
		if _, err := f.running(t.Context(), nil, false); err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// What was read before is no answer of a container runtime that has fallen silent since: who asks for it gets it immediately,
// and the others still don't wait one after another.
func TestMemoryIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &facts{}
		reads := 0
		f.containers = newSnapshot("the runtime", &f.moments, func(ctx context.Context) ([]program.Container, error) {
			if reads++; reads > 1 {
				<-ctx.Done()
			}
			return nil, ctx.Err()
		}, func(context.Context, []program.Container, []program.Container, moment) {})
		f.podInterfaces = newSnapshot("the kernel", &f.moments, func(context.Context) ([]program.Container, error) {
			return nil, nil
		}, func(context.Context, []program.Container, []program.Container, moment) {})
		remembered := func() {
			t.Helper()
			began := time.Now()
			if _, err := f.running(t.Context(), &since{}, true); err != nil || time.Since(began) > 0 {
				t.Errorf("what was read before: %v after %s", err, time.Since(began))
			}
		}
		remembered()
		<-time.After(time.Minute)
		if _, err := f.running(t.Context(), nil, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		remembered()
		<-time.After(time.Minute) // one asks again
		remembered()
		go func() { _, _ = f.running(t.Context(), nil, false) }()
		synctest.Wait()
		remembered()
		began := time.Now()
		if _, err := f.running(t.Context(), nil, false); err == nil || time.Since(began) > 0 {
			t.Errorf("another one waited: %v after %s", err, time.Since(began))
		}
		<-time.After(time.Minute)
	})
}

// A read that panics fails, and the next one is made.
func TestReadThatPanics(t *testing.T) {
	var m moments
	reads := 0
	s := newSnapshot("the runtime", &m, func(context.Context) (int, error) {
		if reads++; reads == 1 {
			panic("an answer that nobody expected")
		}
		return reads, nil
	}, func(context.Context, int, int, moment) {})
	if _, err := s.get(t.Context(), m.event()); err == nil || !strings.Contains(err.Error(), "the runtime gave an answer that the agent fails to read: an answer that nobody expected") {
		t.Errorf("%v", err)
	}
	if got, err := s.get(t.Context(), m.event()); err != nil || got.value != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
