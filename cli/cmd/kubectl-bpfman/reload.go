// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bpfman/bpfman-operator/cli/inspectors"
)

const (
	// reportedWithin is how long the pins of a reloaded program's maps can be missing in its report. Agents write reports
	// once a second at most, and after a failed attempt again later.
	reportedWithin = 30 * time.Second
	reportsAgain   = time.Second
)

// errReloading is about a map that isn't where the report says.
var errReloading = errors.New("the program was probably reloaded, and its report still has the former map: try again")

// afterReload asks about a map. If it isn't there, because the program was reloaded after its report was written, or since then,
// it asks again about the map that find returns, as soon as that is another one.
func afterReload(ctx context.Context, which []string, ask func([]string) error, find func(context.Context) ([]string, error)) error {
	for {
		err := ask(which)
		if err == nil || !errors.Is(err, inspectors.ErrAbsent) {
			return err
		}
		other, failed := otherThan(ctx, which, find)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // nobody waits anymore
		case failed != nil || len(other) == 0:
			return errors.Join(err, failed)
		}
		which = other
	}
}

// otherThan returns what find returns as soon as that differs.
func otherThan(ctx context.Context, which []string, find func(context.Context) ([]string, error)) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, reportedWithin)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil, errReloading
		case <-time.After(reportsAgain):
		}
		if now, err := find(ctx); err != nil || !slices.Equal(now, which) {
			return now, err
		}
	}
}
