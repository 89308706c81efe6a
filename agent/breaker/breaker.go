// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package breaker has a circuit breaker for the services that plans depend on, such as the API server and the container
// runtime. Without it, the agent's workers would wait for a service that doesn't respond one after another, each until its
// deadline, and do nothing else in the meantime.
package breaker

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// patience is the time after which a call without a response shows that the service doesn't respond. The deadlines of
	// calls are longer.
	patience = 5 * time.Second
	// pause is the time until the next call to a service that doesn't respond.
	pause = 10 * time.Second
)

// OpenError is the error of a call that wasn't made, because the service didn't respond to the last one. Its text is that of
// the last one's error, so that what is reported doesn't change with each retry.
type OpenError struct{ Last error }

func (e *OpenError) Error() string { return e.Last.Error() }
func (e *OpenError) Unwrap() error { return e.Last }

// Breaker fails calls to a service immediately while the service doesn't respond, except for one call every 10 seconds.
// The zero value is ready to use. Its methods can be called concurrently.
type Breaker struct {
	mu sync.Mutex
	// silent is the error of the last call that the service didn't respond to, or nil if it has responded since.
	silent error
	// next is the earliest time of the next call while silent is set.
	next time.Time
	// answered is the time of the last response.
	answered time.Time
}

// Do calls a function that calls the service, and returns its error. Each error is a response, unless it says that a
// deadline was exceeded. While the service doesn't respond, Do returns an [OpenError] without calling the function.
func (b *Breaker) Do(call func() error) error {
	if err := b.open(); err != nil {
		return err
	}
	start := time.Now()
	err := call()
	b.note(start, err)
	return err
}

// open returns an error if the service isn't to be called now.
func (b *Breaker) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent == nil {
		return nil
	}
	if time.Now().Before(b.next) {
		return &OpenError{b.silent}
	}
	b.next = time.Now().Add(pause) // others don't wait for the result of this call
	return nil
}

// note records the result of a call. A call shows that the service doesn't respond only if nothing else responded either.
func (b *Breaker) note(start time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled): // the caller has given up
	case !exceeded(err):
		b.silent, b.answered = nil, time.Now()
	case time.Since(start) >= patience && b.answered.Before(start):
		b.silent, b.next = err, time.Now().Add(pause)
	}
}

// exceeded reports whether an error says that a deadline was exceeded: one of a context, of a connection, or of gRPC.
func exceeded(err error) bool {
	timeout := (interface{ Timeout() bool })(nil)
	return errors.As(err, &timeout) && timeout.Timeout() || status.Code(err) == codes.DeadlineExceeded
}
