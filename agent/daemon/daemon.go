// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package daemon is the agent's client of the bpfman daemon. It manages the
// connection, makes calls one at a time, and keeps an inventory of the programs
// that the agent has loaded.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
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

// Error is a failed call of the daemon. Its text is for the user's object. It
// contains the attempted operation and its target, and the daemon's message.
type Error struct {
	Op    string
	Cause error
}

func (e *Error) Error() string {
	switch s := status.Convert(e.Cause); s.Code() {
	case codes.Unavailable:
		return e.Op + ": the bpfman daemon can't be reached: " + s.Message()
	case codes.DeadlineExceeded:
		return e.Op + ": the bpfman daemon didn't answer in time"
	case codes.Unimplemented:
		return e.Op + ": " + otherAPI
	default:
		return e.Op + ": " + s.Message()
	}
}

// SpeaksOtherAPI reports whether an error comes from a daemon with another API
// than v0.6.
func SpeaksOtherAPI(err error) bool {
	failed := (*Error)(nil)
	return errors.As(err, &failed) && status.Code(failed.Cause) == codes.Unimplemented
}

// otherAPI describes a daemon that doesn't implement a call of v0.6's API. The
// daemon of v0.5 has neither Attach nor Detach, and it misreads this Load.
const otherAPI = "the daemon in container bpfman has an incompatible API (bpfman v0.5?): this agent requires v0.6; set bpfman.image in the ConfigMap bpfman-config"

func (e *Error) Unwrap() error { return e.Cause }

// Refused reports whether the daemon answered that the operation failed.
func (e *Error) Refused() bool { return !uncertain(e.Cause) }

// permanent matches the errors of the daemon of v0.6.0 about a Load that fails until the
// object, the kernel, or the daemon changes: the kernel's verifier refuses a program, or
// the kernel doesn't support what it uses (with the number of the error) or one of its
// maps, the bytecode can't be parsed or relocated, or a function or a global variable
// isn't in it.
var permanent = regexp.MustCompile(strings.Join([]string{
	`LoadError \{ io_error: Os \{ code: (1|7|13|22|95|524),`,
	`UnexpectedProgramType`,
	`failed to create map`,
	`error relocating (function|section)`,
	`error parsing BPF object`,
	`BpfFunctionNameNotValid`,
	`not found in the symbols table`,
	"but provided data is of size",
}, "|"))

// Permanent reports whether the daemon refused a Load for a reason that stays.
func (e *Error) Permanent() bool {
	return e.Refused() && permanent.MatchString(status.Convert(e.Cause).Message())
}

// noProgram and noLink are the messages of the daemon of v0.6.0 about a program or
// link that no longer exists. It uses one status code for all failures, and
// has similar messages about other objects.
const (
	noProgram = "Program %d does not exist"
	noLink    = `does not exist in tree "link_%d"`
)

// gone reports whether the daemon no longer has a program or link.
func gone(err error, text string, id uint32) bool {
	return strings.Contains(status.Convert(normal(err)).Message(), fmt.Sprintf(text, id))
}

// uncertain reports whether it is unknown if the call took effect. The daemon only
// answers with Aborted, so all other codes come from the connection.
func uncertain(err error) bool {
	return status.Code(err) != codes.Aborted
}
