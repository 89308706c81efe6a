// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package hints

import (
	"fmt"
	"maps"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/bpfman/bpfman-operator/internal/hints"
)

func set(kinds ...string) map[string]bool {
	s := map[string]bool{}
	for _, kind := range kinds {
		s[kind] = true
	}
	return s
}

func TestKindsAreNamedFromTheFirstObjectToLongAfterTheLast(t *testing.T) {
	start := time.Unix(1000, 0)
	gone := map[string]time.Time{}
	published := set("Unread", "Stale")
	for _, step := range []struct {
		after time.Duration
		used  map[string]bool
		want  map[string]bool
		next  time.Duration
	}{
		// What a previous operator has published stays for some time.
		{0, map[string]bool{"A": true, "B": false, "Stale": false}, set("Unread", "Stale", "A"), unusedAfter},
		{time.Minute, map[string]bool{"A": false, "B": true, "Stale": false}, set("Unread", "Stale", "A", "B"), unusedAfter - time.Minute},
		{unusedAfter, map[string]bool{"A": false, "B": true, "Stale": false}, set("Unread", "A", "B"), time.Second},
		{unusedAfter + time.Second, map[string]bool{"A": true, "B": true, "Stale": false, "Unread": true}, set("Unread", "A", "B"), 0},
		{unusedAfter + 2*time.Minute, map[string]bool{"A": false, "B": true, "Stale": false, "Unread": true}, set("Unread", "A", "B"), unusedAfter},
	} {
		now := start.Add(step.after)
		got := named(step.used, published, gone, now)
		if !maps.Equal(got, step.want) {
			t.Errorf("after %v %v is named", step.after, got)
		}
		if wait := next(gone, nil, now); wait != step.next {
			t.Errorf("after %v the next pass is due in %v, not %v", step.after, wait, step.next)
		}
		if added := adds(got, published); added != !maps.Equal(got, published) && len(got) > len(published) {
			t.Errorf("after %v it adds one: %v", step.after, added)
		}
		published = got
	}
}

// Nodes are published for some time, including those that another replica has published.
// A large number of nodes becomes all nodes.
func TestNodesAreNamedForAWhile(t *testing.T) {
	now := time.Unix(5000, 0)
	clock := testingclock.NewFakePassiveClock(now)
	r := &Reconciler{Clock: clock}
	r.Relist("mine")
	published := map[string]time.Time{"others": now.Add(-time.Minute), "old": now.Add(-relistFor), "future": now.Add(time.Hour), "mine": now.Add(-time.Minute)}
	want := map[string]time.Time{"others": now.Add(-time.Minute), "mine": now}
	if got, _ := r.nodes(published); !maps.Equal(got, want) {
		t.Errorf("named are %v", got)
	}
	if wait := next(nil, want, now); wait != relistFor-time.Minute {
		t.Errorf("the next pass is due in %v", wait)
	}
	clock.SetTime(now.Add(relistFor))
	if got, _ := r.nodes(want); len(got) != 0 {
		t.Errorf("named are %v", got)
	}
	for n := range 3 * hints.MaxNodes {
		r.Relist(fmt.Sprintf("node-%d", n))
	}
	if got, _ := r.nodes(nil); len(got) > hints.MaxNodes+2 || got[hints.EveryNode].IsZero() {
		t.Errorf("%d are named, all at %v", len(got), got[hints.EveryNode])
	}
}
