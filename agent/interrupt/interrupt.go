// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package interrupt ends work between two of its steps. A context alone also ends the step in progress, and for a call of the
// daemon, it wouldn't be known then whether the call took effect.
package interrupt

import "context"

type outer struct{}

// With returns a context that ends when the returned function is called with the reason. [Without] returns the one that goes on.
func With(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(context.WithValue(ctx, outer{}, ctx))
}

// Without returns the context for a step that isn't interrupted once it has begun.
func Without(ctx context.Context) context.Context {
	if whole, ok := ctx.Value(outer{}).(context.Context); ok {
		return whole
	}
	return ctx
}
