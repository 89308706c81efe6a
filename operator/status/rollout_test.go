// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Nodes that were healthy in a step, or join it, wait from then on. Those of a new step wait since it began.
func TestSinceWhenNodesWait(t *testing.T) {
	began := time.Unix(1000, 0)
	r, clock, _ := newReconciler(NewIndex())
	clock.SetTime(began)
	object := &v1alpha1.TcxProgram{}
	object.UID = uid
	for i, round := range []struct {
		step             int32
		waits            int
		healthy, waiting time.Duration // since the beginning; 0 for never
	}{
		{step: 1, waits: 1},
		{step: 1, waits: 1},
		{step: 1, healthy: 2 * time.Hour},
		{step: 1, healthy: 2 * time.Hour},
		{step: 1, waits: 1, waiting: 4 * time.Hour},
		{step: 1, waits: 2, waiting: 4 * time.Hour},
		{step: 1, healthy: 6 * time.Hour},
		{step: 2, waits: 1},
		{step: 2, healthy: 8 * time.Hour},
	} {
		summary := Summary{Rollout: &v1alpha1.RolloutStatus{Revision: 2, Step: round.step}, Changing: Changing{Waiting: round.waits}}
		healthy, waiting := r.since(object, summary)
		if round.waits == 0 && !healthy.Equal(began.Add(round.healthy)) {
			t.Errorf("round %d: healthy since %s, want %s", i, healthy.Sub(began), round.healthy)
		}
		if round.waiting == 0 && !waiting.IsZero() || round.waiting != 0 && !waiting.Equal(began.Add(round.waiting)) {
			t.Errorf("round %d: nodes wait since %s, want %s", i, waiting.Sub(began), round.waiting)
		}
		clock.Step(time.Hour)
	}
}
