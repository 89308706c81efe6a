// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package daemon is the agent's client of the bpfman daemon. It manages the
// connection, makes calls one at a time, and keeps an inventory of the programs
// that the agent has loaded.
package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// OnConnect calls f each time the connection becomes ready, until ctx ends.
func OnConnect(ctx context.Context, conn *grpc.ClientConn, f func()) {
	for state := conn.GetState(); ; state = conn.GetState() {
		if state == connectivity.Ready {
			f()
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// Error is a failed call of the daemon. Its text is for the user's object: in its first line, the cause, and
// the attempted operation and its target. The log of the kernel's verifier follows, if there is one.
type Error struct {
	Op    string
	Cause error
	// Took is how long the daemon had the call. It is 0 if the call wasn't made.
	Took time.Duration
}

func (e *Error) Error() string {
	var cause, log string
	switch s := status.Convert(e.Cause); s.Code() {
	case codes.Unavailable:
		cause = problem.Notef(problem.DaemonUnreachable, "the bpfman daemon can't be reached: %s", s.Message()).Text
	case codes.DeadlineExceeded:
		cause = problem.Notef(problem.DaemonBusy, "the bpfman daemon didn't answer in time").Text
	default:
		cause, log = inWords(s.Message())
	}
	text := e.Op + ": " + cause
	if what, loads := strings.CutPrefix(e.Op, "load "); loads { // what was loaded can be long, and has digests
		text = cause + ", when loading " + what
	}
	if log != "" {
		text += "\n" + log
	}
	return text
}

// SpeaksOtherAPI reports whether an error comes from a daemon that isn't supported.
func SpeaksOtherAPI(err error) bool {
	failed := (*Error)(nil)
	return errors.As(err, &failed) && status.Code(failed.Cause) == codes.Unimplemented
}

func (e *Error) Unwrap() error { return e.Cause }

// Refused reports whether the daemon answered that the operation failed.
func (e *Error) Refused() bool { return !uncertain(e.Cause) }

// Permanent reports whether the daemon refused a Load for a reason that stays until the
// object, the kernel, or the daemon changes.
func (e *Error) Permanent() bool { return status.Code(e.Cause) == codes.FailedPrecondition }

// uncertain reports whether it is unknown if the call took effect. Its error has the form
// that [dialect.refusal] describes.
func uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Aborted, codes.FailedPrecondition, codes.NotFound:
		return false
	default:
		return true
	}
}
