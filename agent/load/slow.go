// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/recent"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	// slowAgain is the number of times in a row that a Load takes too long, from which on it is delayed. The first time, the
	// daemon can have been slow for another reason.
	slowAgain = 2
	// firstSlow is the first delay. lastReload is the longest one.
	firstSlow = 10 * time.Minute
)

// slowLoads delays Loads that take too long each time, more after each one. The daemon serves nobody else meanwhile, and is
// restarted in the end.
type slowLoads struct {
	kept *recent.Values[attempt, slowLoad]
}

func newSlowLoads() *slowLoads {
	return &slowLoads{recent.New[attempt, slowLoad](maxRefusals, forgetAfter)}
}

type slowLoad struct {
	times int
	err   error
	until time.Time
}

// slowError is the failure of a Load that takes too long each time.
type slowError struct {
	note    problem.Note
	failure error
}

func (e *slowError) Error() string { return e.note.Text }

func (e *slowError) Unwrap() error { return e.failure }

// Problem implements the method of errors that name their problem.
func (e *slowError) Problem() problem.Reason { return e.note.Reason }

// try calls load, unless it took too long lately. In that case, it returns the same error.
func (s *slowLoads) try(id attempt, load func() error) error {
	last := s.kept.Get(id.owner.Namespace, id)
	if time.Now().Before(last.until) {
		return last.err
	}
	err := load()
	failed := (*daemon.Error)(nil)
	switch {
	case err == nil || errors.As(err, &failed) && failed.Refused():
		s.kept.Remove(id.owner.Namespace, id)
		return err
	case failed == nil || status.Code(failed.Cause) != codes.DeadlineExceeded || failed.Took < bpfman.MaxLoad:
		return err // it didn't get its turn, for example, however long it waited
	}
	is := slowLoad{times: last.times + 1, err: err}
	if is.times >= slowAgain {
		delay := min(firstSlow<<min(is.times-slowAgain, 10), lastReload) //nolint:mnd // so that it doesn't overflow
		is.err = &slowError{problem.Notef(problem.LoadSlow, "this load took longer than %s, %d times in a row, so it is tried again in %s: %s", bpfman.MaxLoad, is.times, delay, failed.Op), err}
		is.until = time.Now().Add(delay)
	}
	s.kept.Put(id.owner.Namespace, id, is)
	return is.err
}
