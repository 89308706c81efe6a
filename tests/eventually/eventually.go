// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package eventually waits for what has to happen.
package eventually

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Succeeds repeats a check until it returns nil. When the time is over, it returns the last error of the check. It
// leaves out an error that only says that the time is over, unless there is no other.
func Succeeds(ctx context.Context, timeout, interval time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waited %v: %w", timeout, last)
	}
	return nil
}
