// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package breaker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// service is what a Breaker calls.
type service struct {
	Breaker

	silent atomic.Bool
	calls  atomic.Int32
}

const deadline = 30 * time.Second

// call calls the service with a deadline.
func (s *service) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return s.Do(func() error {
		s.calls.Add(1)
		if s.silent.Load() {
			<-ctx.Done()
			return fmt.Errorf("get: %w", ctx.Err())
		}
		return errors.New("refused")
	})
}

// While a service doesn't respond, one caller at a time waits for it. The others get the same error immediately.
func TestOneCallerWaitsForASilentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.silent.Store(true)
		first := s.call(t.Context())
		start := time.Now()
		for range 100 {
			err := s.call(t.Context())
			if open := (*OpenError)(nil); !errors.As(err, &open) || !errors.Is(err, context.DeadlineExceeded) || err.Error() != first.Error() {
				t.Errorf("%v, want %v", err, first)
			}
		}
		if took := time.Since(start); took > 0 || s.calls.Load() != 1 {
			t.Errorf("%d calls, others waited for %s", s.calls.Load(), took)
		}
		<-time.After(pause)
		var waited atomic.Int32
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				start := time.Now()
				if s.call(t.Context()) == nil {
					t.Error("no error")
				}
				if time.Since(start) > 0 {
					waited.Add(1)
				}
			})
		}
		group.Wait()
		if waited.Load() != 1 || s.calls.Load() != 2 {
			t.Errorf("%d waited, %d calls", waited.Load(), s.calls.Load())
		}
	})
}

// One response, even an error, shows that the service responds again.
func TestAResponseClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.silent.Store(true)
		_ = s.call(t.Context())
		s.silent.Store(false)
		<-time.After(pause)
		for range 3 {
			if err := s.call(t.Context()); err == nil || err.Error() != "refused" {
				t.Errorf("%v", err)
			}
		}
		if s.calls.Load() != 4 {
			t.Errorf("%d calls", s.calls.Load())
		}
	})
}

// A call that exceeds its deadline doesn't stop others while the service responds to them, or if its deadline was short.
func TestASlowCallStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		var group sync.WaitGroup
		group.Go(func() {
			_ = s.Do(func() error { <-time.After(deadline); return context.DeadlineExceeded })
		})
		<-time.After(deadline / 2)
		_ = s.call(t.Context())
		group.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-time.After(deadline)
		_ = s.Do(func() error { <-short.Done(); return short.Err() })
		if err := s.call(t.Context()); err.Error() != "refused" {
			t.Errorf("%v", err)
		}
	})
}

func TestExceeded(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("connection refused"), false},
		{context.Canceled, false},
		{status.Error(codes.Unavailable, "no socket"), false},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), true},
		{&os.PathError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		{fmt.Errorf("list: %w", status.Error(codes.DeadlineExceeded, "too late")), true},
	} {
		if got := exceeded(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
