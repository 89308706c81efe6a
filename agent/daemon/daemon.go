// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package daemon is the agent's side of the bpfman daemon: the connection, the
// one lane of calls, and an inventory of what the daemon holds for us.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Deadlines of one call, counted from when it is the daemon's turn for it. A
// Load may pull an image.
const (
	loadDeadline = 2 * time.Minute
	callDeadline = 30 * time.Second
)

// maxAnswer is the longest answer that is taken. Each program is listed with its
// global data, which a user's object may have a megabyte of.
const maxAnswer = 64 << 20

// Dial returns a connection to the daemon's socket, made when it is first
// needed and made again, within a second or so, whenever the daemon returns.
func Dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("dial daemon at %s: %w", socket, err)
	}
	return conn, nil
}

// OnConnect calls f each time the connection comes up, until ctx ends.
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

// Error is a failed call of the daemon. Its text is for the user's object: what
// was tried, on what, and the daemon's own words.
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
		return e.Op + ": " + words(s.Message())
	}
}

// SpeaksOtherAPI tells that an error comes from a daemon whose API isn't v0.6's.
func SpeaksOtherAPI(err error) bool {
	failed := (*Error)(nil)
	return errors.As(err, &failed) && status.Code(failed.Cause) == codes.Unimplemented
}

// otherAPI says what a daemon is that lacks a call of v0.6's API. That of v0.5
// has neither Attach nor Detach, and takes a Load for something else.
const otherAPI = "the daemon in container bpfman has an incompatible API (bpfman v0.5?): this agent requires v0.6; set bpfman.image in the ConfigMap bpfman-config"

// wrapped is how the daemon of v0.6.0 gives an error of its own: as the debug
// form of a status, whose message alone is for people.
var wrapped = regexp.MustCompile(`^status: \w+, message: ("(?:[^"\\]|\\.)*"), details: `)

// words takes the daemon's words out of what it wraps them in.
func words(message string) string {
	if match := wrapped.FindStringSubmatch(message); match != nil {
		if inner, err := strconv.Unquote(match[1]); err == nil {
			return inner
		}
	}
	return message
}

func (e *Error) Unwrap() error { return e.Cause }

// Refused tells that the daemon answered that it can't be done.
func (e *Error) Refused() bool { return !uncertain(e.Cause) }

// noImage is how the daemon of v0.6.0 says that it hasn't pulled an image which it
// may not pull.
const noImage = "BytecodeImage not found: "

// ImageAbsent tells that the daemon hasn't got the image of a Load that was to
// pull nothing.
func ImageAbsent(err error) bool {
	failed := (*Error)(nil)
	return errors.As(err, &failed) && failed.Refused() && strings.Contains(words(status.Convert(failed.Cause).Message()), noImage)
}

// noProgram and noLink are how the daemon of v0.6.0 says that what was to be
// removed is no longer there. It has one status code for all failures, and
// other things that it may say not to exist.
const (
	noProgram = "Program %d does not exist"
	noLink    = `does not exist in tree "link_%d"`
)

// gone tells that the daemon no longer has a program or link.
func gone(err error, text string, id uint32) bool {
	return strings.Contains(words(status.Convert(err).Message()), fmt.Sprintf(text, id))
}

// uncertain tells that the call may or may not have taken effect: the daemon
// answers with Aborted alone, so everything else comes from the connection.
func uncertain(err error) bool {
	return status.Code(err) != codes.Aborted
}
