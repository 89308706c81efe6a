// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/internal/hints"
)

// An agent lists its reports once for each hint.
func TestHintsAreFollowedOnce(t *testing.T) {
	one, two := time.Unix(1, 0), time.Unix(2, 0)
	var h hinted
	for i, step := range []struct {
		relist        map[string]time.Time
		follows, each bool
	}{
		{nil, false, false},
		{map[string]time.Time{"other": two}, false, false},
		{map[string]time.Time{"other": two, "node": one}, true, false},
		{map[string]time.Time{"node": one}, false, false},
		{map[string]time.Time{"node": one, hints.EveryNode: two}, true, true},
		{map[string]time.Time{hints.EveryNode: two}, false, true},
		{nil, false, false},
		{map[string]time.Time{"node": two}, true, false},
	} {
		if follows, each := h.take(hints.Hints{Relist: step.relist}, "node"); follows != step.follows || each != step.each {
			t.Errorf("step %d: %v, for every node %v", i, follows, each)
		}
	}
}
