// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowDaemon responds after a second, and numbers its responses.
func slowDaemon(asked *atomic.Int32) *listing {
	return &listing{ask: func(ctx context.Context, _ string) ([]Program, error) {
		n := asked.Add(1)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
			return []Program{{ID: uint32(n)}}, nil
		}
	}}
}

func TestListingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if programs, err := l.since(t.Context(), "counter", time.Now()); err != nil || programs[0].ID != 1 {
					t.Errorf("since = %v, %v", programs, err)
				}
			})
		}
		group.Wait()
		if _, err := l.since(t.Context(), "counter", time.Now().Add(-time.Second)); err != nil || asked.Load() != 1 {
			t.Errorf("the daemon was asked %d times, %v", asked.Load(), err)
		}
		if programs, err := l.since(t.Context(), "counter", time.Now()); err != nil || programs[0].ID != 2 {
			t.Errorf("later: %v, %v", programs, err)
		}
	})
}

func TestListingIsNoOlderThanAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		early := make(chan struct{})
		go func() {
			defer close(early)
			_, _ = l.since(t.Context(), "counter", time.Now())
		}()
		<-time.After(time.Second / 2)
		if programs, err := l.since(t.Context(), "counter", time.Now()); err != nil || programs[0].ID != 2 {
			t.Errorf("since = %v, %v; want the answer to a later call", programs, err)
		}
		<-early
	})
}

// Each name has its own list. Old lists are removed.
func TestListingByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		start := time.Now()
		for n, name := range []string{"a", "b", "a", "b"} {
			if programs, err := l.since(t.Context(), name, start); err != nil || programs[0].ID != uint32(n%2+1) {
				t.Errorf("since %s = %v, %v", name, programs, err)
			}
		}
		<-time.After(2 * snapshotReuse)
		if _, err := l.since(t.Context(), "c", time.Now()); err != nil || len(l.latest) != 1 {
			t.Errorf("%d lists, %v", len(l.latest), err)
		}
	})
}

func TestListingIsNotUsedAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		start := time.Now()
		for want := range uint32(3) {
			if programs, err := l.since(t.Context(), "counter", start); err != nil || programs[0].ID != want+1 {
				t.Errorf("since = %v, %v", programs, err)
			}
			<-time.After(time.Second)
			l.outdate()
		}
	})
}

// While the agent loads many programs, each of them is a change during the daemon's response to the list before.
func TestListingEndsWhileChangesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var changes sync.WaitGroup
		changes.Go(func() {
			for ctx.Err() == nil {
				l.outdate()
				<-time.After(time.Second / 2)
			}
		})
		if programs, err := l.since(ctx, "counter", time.Now()); err != nil || asked.Load() > 2 {
			t.Errorf("since = %v, %v, after asking the daemon %d times", programs, err, asked.Load())
		}
		cancel()
		changes.Wait()
	})
}

func TestListingOutlivesWhoAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := slowDaemon(&asked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		start := time.Now()
		if _, err := l.since(ctx, "counter", start); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("since: %v", err)
		}
		if _, err := l.since(t.Context(), "counter", start); err != nil || asked.Load() != 1 {
			t.Errorf("the daemon was asked %d times, %v", asked.Load(), err)
		}
	})
}

func TestListingOfAFailingDaemonIsAskedAgain(t *testing.T) {
	failure := errors.New("down")
	l := &listing{ask: func(context.Context, string) ([]Program, error) { return nil, failure }}
	if _, err := l.since(t.Context(), "counter", time.Now()); !errors.Is(err, failure) {
		t.Errorf("since: %v", err)
	}
	l.ask = func(context.Context, string) ([]Program, error) { return nil, nil }
	if _, err := l.since(t.Context(), "counter", time.Now()); err != nil {
		t.Errorf("since: %v", err)
	}
}
