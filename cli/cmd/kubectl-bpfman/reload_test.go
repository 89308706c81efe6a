// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/cli/inspectors"
)

// A dump, however long it has repeated, waits until the report of a reloaded program has its new maps.
func TestDumpAfterReload(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("node a: %w: open the map pinned at /run/bpfman/fs/maps/7/m: no such file or directory", inspectors.ErrAbsent)
	other := errors.New("on node a: permission denied")
	for name, test := range map[string]struct {
		asked    map[string]error // by map
		runs     time.Duration    // how long it asks
		reported time.Duration    // when the report has the other map
		took     time.Duration
		want     error
	}{
		"not reloaded":   {map[string]error{"old": nil}, 0, 0, 0, nil},
		"another error":  {map[string]error{"old": other}, 0, 0, 0, other},
		"reloaded":       {map[string]error{"old": gone, "new": nil}, 0, 4 * time.Second, 4 * time.Second, nil},
		"reloaded badly": {map[string]error{"old": gone, "new": other}, 0, 4 * time.Second, 4 * time.Second, other},
		"reloaded later": {map[string]error{"old": gone, "new": nil}, time.Hour, time.Hour + 4*time.Second, 2*time.Hour + 4*time.Second, nil},
		"never reported": {map[string]error{"old": gone}, 0, time.Hour, reportedWithin, errReloading},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := afterReload(t.Context(), []string{"old"}, func(which []string) error {
					time.Sleep(test.runs) //nolint:forbidigo // in the bubble, the clock isn't real
					return test.asked[which[0]]
				}, func(context.Context) ([]string, error) {
					if time.Since(start) < test.reported {
						return []string{"old"}, nil
					}
					return []string{"new"}, nil
				})
				if took := time.Since(start); !errors.Is(err, test.want) || took != test.took {
					t.Errorf("%v after %s, want %v after %s", err, took, test.want, test.took)
				}
			})
		})
	}
}
