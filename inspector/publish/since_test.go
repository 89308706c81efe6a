// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package publish

import (
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestSinceOfAConflictThatReturns(t *testing.T) {
	foreign := v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeForeignXDP, ProgramID: 5, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "drop"}}
	limit := v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeEventNearLimit, Message: "tracepoint a/b has all of the 64 programs that the kernel allows, most of them held by process x"}
	held := limit
	held.Message = "tracepoint a/b has all of the 64 programs that the kernel allows, most of them held by process y"
	other := limit
	other.Message = "tracepoint a/c has all of the 64 programs that the kernel allows, most of them held by process x"
	for name, c := range map[string]struct {
		first, then v1alpha1.BpfNodeConflict
		absent      time.Duration
		same        bool
	}{
		"it stays":                  {foreign, foreign, 0, true},
		"shortly after":             {foreign, foreign, returning, true},
		"long after":                {foreign, foreign, returning + time.Second, false},
		"another process has most":  {limit, held, 0, true},
		"another tracepoint":        {limit, other, 0, false},
		"another owner's at a hook": {foreign, limit, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			known, now := dates{}, time.Unix(1_700_000_000, 0)
			var before []v1alpha1.BpfNodeConflict
			report := func(later time.Duration, conflicts ...v1alpha1.BpfNodeConflict) {
				now = now.Add(later)
				known.set(conflicts, before, now)
				before = conflicts
			}
			report(0, c.first)
			since := before[0].Since
			report(time.Hour, c.first)
			if !before[0].Since.Equal(since) {
				t.Errorf("since %v, then %v, although it is still there", since, before[0].Since)
			}
			if c.absent > 0 {
				report(time.Hour)
			}
			report(c.absent, c.then)
			if same := before[0].Since.Equal(since); same != c.same {
				t.Errorf("since %v, then %v", since, before[0].Since)
			}
		})
	}
}

// A step of the clock doesn't make a conflict a new one.
func TestSinceWhileTheClockSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		known, begin := dates{}, time.Unix(1_700_000_000, 0)
		report := func(before []v1alpha1.BpfNodeConflict, now time.Time) []v1alpha1.BpfNodeConflict {
			found := []v1alpha1.BpfNodeConflict{{Type: v1alpha1.BpfNodeUnownedProgram, ProgramID: 5}}
			known.set(found, before, now)
			return found
		}
		first := report(nil, begin)
		then := report(first, begin.Add(step))
		if !then[0].Since.Equal(first[0].Since) {
			t.Errorf("since %v, then %v", first[0].Since, then[0].Since)
		}
	}
}
