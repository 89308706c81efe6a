// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/interrupt"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Deadlines of one call, without the time that it waits for other calls.
const (
	loadDeadline = bpfman.MaxLoad
	callDeadline = 30 * time.Second
)

// lane admits one call at a time, as the daemon does. While the daemon is silent, which means that it didn't answer the
// last call in time, callers don't queue up. Otherwise, each of them would wait for a whole deadline after
// another, and what must run first once the daemon is back, such as a rollback, would wait for all of them.
type lane struct {
	turn chan struct{}

	mu     sync.Mutex
	silent bool
	// fellSilent is closed while the daemon is silent.
	fellSilent chan struct{}
}

func newLane() *lane {
	return &lane{turn: make(chan struct{}, 1), fellSilent: make(chan struct{})}
}

// errSilent is the result for callers that don't wait.
var errSilent = status.Error(codes.DeadlineExceeded, "the daemon didn't answer an earlier call")

// enter waits for other calls, or returns errSilent while another caller waits for a silent daemon.
func (l *lane) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return l.entered(ctx)
	default:
	}
	l.mu.Lock()
	fellSilent := l.fellSilent
	l.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
		return l.entered(ctx)
	case <-fellSilent:
		return errSilent
	case <-ctx.Done():
		return waitEnded(ctx)
	}
}

// entered leaves the lane if ctx has ended, because the lane can have become free at the same time.
func (l *lane) entered(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	l.leave()
	return waitEnded(ctx)
}

func waitEnded(ctx context.Context) error {
	return problem.Errorf(problem.DaemonBusy, "wait for other calls to the daemon: %w", context.Cause(ctx))
}

func (l *lane) leave() { <-l.turn }

// heard records whether the daemon answered a call in time.
func (l *lane) heard(inTime bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !inTime && !l.silent:
		close(l.fellSilent)
	case inTime && l.silent:
		l.fellSilent = make(chan struct{})
	}
	l.silent = !inTime
}

func (l *lane) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// within makes one call with a deadline, and records whether the daemon answered in time.
func within[R any](ctx context.Context, l *lane, deadline time.Duration, call func(context.Context) (R, error)) (R, error) {
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	response, err := call(limited)
	if err == nil || ctx.Err() == nil { // otherwise, the caller gave up
		l.heard(err == nil || limited.Err() == nil)
	}
	return response, err
}

// enter waits for other calls. If the daemon is silent, enter asks it first: a Load that it doesn't answer would take
// longer, and the daemon might still execute it later. An interrupt of ctx doesn't end that question: repeated ones would
// never let a slow daemon answer. After a nil error, the caller has to leave the lane.
func (i *Inventory) enter(ctx context.Context, op string) error {
	err := i.lane.enter(ctx)
	if errors.Is(err, errSilent) {
		return &Error{Op: op, Cause: err}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if !i.lane.isSilent() {
		return nil
	}
	_, err = within(interrupt.Without(ctx), i.lane, callDeadline, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, bpfman.Ask(ctx, i.rpc)
	})
	if err != nil {
		i.lane.leave()
		return &Error{Op: op, Cause: err}
	}
	if err := i.lane.entered(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// do waits for other calls, makes one call with a deadline, for which it recognizes the daemon, and then calls record.
// Record runs before the next call, so that the inventory is up to date when the next
// caller sees the effect. An interrupt of ctx prevents the call, but doesn't end it.
func do[R any](ctx context.Context, i *Inventory, op string, deadline time.Duration, call func(context.Context, dialect) (R, error), record func(R)) error {
	if err := i.enter(ctx, op); err != nil {
		return err
	}
	defer i.lane.leave()
	began := time.Now()
	response, err := within(interrupt.Without(ctx), i.lane, deadline, func(ctx context.Context) (none R, _ error) {
		d, err := i.recognize(ctx)
		if err != nil {
			return none, err
		}
		response, err := call(ctx, d)
		if err != nil {
			return none, refusal(d, err)
		}
		return response, nil
	})
	took := time.Since(began)

	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		if uncertain(err) {
			i.known = false
		}
		return &Error{Op: op, Cause: err, Took: took}
	}
	record(response)
	return nil
}

// Exclusively runs f while no call of the daemon is in progress, and delays other
// calls until f has returned.
func (i *Inventory) Exclusively(ctx context.Context, f func() error) error {
	if err := i.enter(ctx, "make other calls wait"); err != nil {
		return err
	}
	defer i.lane.leave()
	return f()
}
