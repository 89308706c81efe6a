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

// afterReload asks about a map. If it isn't there, because the program was reloaded after its report was written, it asks
// again about the map that find returns, as soon as that is another one.
func afterReload(ctx context.Context, which []string, ask func([]string) error, find func(context.Context) ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, reportedWithin)
	defer cancel()
	for {
		err := ask(which)
		if err == nil || !errors.Is(err, inspectors.ErrAbsent) {
			return err
		}
		before := which
		for slices.Equal(which, before) {
			select {
			case <-ctx.Done():
				return errors.Join(err, errReloading)
			case <-time.After(reportsAgain):
			}
			now, failed := find(ctx)
			if failed != nil || len(now) == 0 {
				return errors.Join(err, failed)
			}
			which = now
		}
	}
}
