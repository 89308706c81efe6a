// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Match selects events. An empty field selects all.
type Match struct {
	Actor, Verb, Resource, Subresource, Name string
	// Done selects the events after they took effect, instead of those before.
	Done bool
	// Delivered selects the parts of watches instead.
	Delivered bool
	// Writes selects those that change something.
	Writes bool
}

// Matches reports whether an event is selected.
func (m Match) Matches(e Event) bool {
	return e.Done == m.Done && e.Delivered == m.Delivered && (e.Writes() || !m.Writes) && same(m.Actor, e.Actor) && same(m.Verb, e.Verb) && same(m.Resource, e.Resource) &&
		same(m.Subresource, e.Subresource) && same(m.Name, e.Name)
}

func same(wanted, is string) bool { return wanted == "" || wanted == is }

// Nth returns a hook that does something at the nth event that matches, counted from 1.
func Nth(n int, m Match, do Hook) Hook {
	var count atomic.Int64
	return func(ctx context.Context, e Event) error {
		if !m.Matches(e) || count.Add(1) != int64(n) {
			return nil
		}
		return do(ctx, e)
	}
}

// Each returns a hook that does something at each event that matches.
func Each(m Match, do Hook) Hook {
	return func(ctx context.Context, e Event) error {
		if !m.Matches(e) {
			return nil
		}
		return do(ctx, e)
	}
}

// Crash is a hook that crashes the component whose event it is, and starts it again after a time, unless that is 0.
func (w *World) Crash(restart time.Duration) Hook {
	return func(_ context.Context, e Event) error {
		if c := w.Component(e.Actor); c != nil {
			c.Crash()
			if restart > 0 {
				time.AfterFunc(restart, c.Start)
			}
		}
		return errCrashed
	}
}

// Lose is a hook that breaks the connection: after an event, its answer is lost.
func Lose(context.Context, Event) error { return io.ErrUnexpectedEOF }

// Hang is a hook that lets the component wait until its deadline.
func Hang(ctx context.Context, _ Event) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Delay returns a hook that takes time.
func Delay(d time.Duration) Hook {
	return func(ctx context.Context, _ Event) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Answer returns a hook with a response of the API server, such as 429, 500 or 409.
func Answer(code int32, reason metav1.StatusReason, retryAfter time.Duration) Hook {
	return func(context.Context, Event) error {
		status := metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "caused by a fault"}
		if retryAfter > 0 {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter.Seconds())}
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
}

// Component returns the component with a name, or nil.
func (w *World) Component(name string) *Component {
	all := w.Components()
	if i := slices.IndexFunc(all, func(c *Component) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Components returns all components, in the order in which they were added.
func (w *World) Components() []*Component {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.components)
}
