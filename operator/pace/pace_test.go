// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package pace

import (
	"testing"
	"time"
)

func TestBetween(t *testing.T) {
	for agents, want := range map[int]time.Duration{0: time.Second, 50: time.Second, 51: 1020 * time.Millisecond, 5000: 100 * time.Second} {
		if got := Between(time.Second, agents); got != want {
			t.Errorf("%d agents: %v, want %v", agents, got, want)
		}
	}
}
