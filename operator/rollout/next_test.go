// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

var start = time.Unix(1000, 0)

// cluster simulates the nodes of an object, whose positions are 10, 20, and so on.
type cluster struct {
	t       *testing.T
	policy  v1alpha1.RolloutPolicySpec
	nodes   int
	now     time.Time
	healthy time.Time
	// waiting is since when a step that was healthy has a slow node.
	waiting time.Time
	// slow and bad are how many of the nodes with the revision don't report it, or fail.
	slow, bad int
	paused    bool
	resumed   string
	status    *v1alpha1.RolloutStatus
	again     time.Duration
}

func (c *cluster) input() Input {
	return Input{
		Policy: &c.policy, Now: c.now, HealthySince: c.healthy, WaitingSince: c.waiting, Paused: c.paused, Resumed: c.resumed,
		Nodes: Nodes{
			Matching: c.nodes, Selected: c.nodes, Waiting: c.slow, Failed: c.bad, Names: []string{"node-1: broken"},
			Positions: func() []int64 {
				var all []int64
				for i := range c.nodes {
					all = append(all, int64(i+1)*10)
				}
				return all
			},
		},
	}
}

// next decides until nothing changes anymore.
func (c *cluster) next() {
	c.t.Helper()
	for range 2 * (len(c.policy.Steps) + 2) {
		before := c.status.Position() + string(c.status.State)
		c.status, c.again = Next(c.status, c.input())
		if before == c.status.Position()+string(c.status.State) {
			return
		}
	}
	c.t.Fatal("the rollout doesn't settle")
}

// is checks the state, the step, the number of nodes, and a part of the message.
func (c *cluster) is(state v1alpha1.RolloutState, step, nodes int32, words string) {
	c.t.Helper()
	s := c.status
	if s.State != state || s.Step != step || s.Nodes != nodes || !strings.Contains(s.Message, words) {
		c.t.Fatalf("%s, step %d on %d nodes: %q; want %s, step %d on %d nodes: %q", s.State, s.Step, s.Nodes, s.Message, state, step, nodes, words)
	}
	want := int64(nodes)*10 + 1
	if nodes == 0 {
		want = 0
	}
	if state == v1alpha1.RolloutProgressing && int(step) <= len(c.policy.Steps) && (s.Until == nil || *s.Until != want) {
		c.t.Fatalf("until is %v, want %d", s.Until, want)
	}
}

func begin(t *testing.T, nodes int, steps ...v1alpha1.RolloutStep) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: nodes, now: start, healthy: start, policy: v1alpha1.RolloutPolicySpec{
		Steps: steps, TimeLimit: metav1.Duration{Duration: time.Minute}, OnFailure: v1alpha1.RolloutHalt,
	}}
	c.slow = 1
	c.status = Begin("staged", Numbered{2, "hash"}, &v1alpha1.RolloutRevision{Revision: 1}, c.input())
	return c
}

func on(nodes any) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Nodes: intstr.Parse(fmt.Sprint(nodes))}
}

func TestNext(t *testing.T) {
	t.Run("goes on when the nodes are healthy", func(t *testing.T) {
		c := begin(t, 10, on(1), on("25%"), on("50%"))
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "revision 2, step 1 of 4 on 1 of 10 nodes")
		if c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
		for _, nodes := range []int32{3, 5} {
			c.slow = 0
			c.status, _ = Next(c.status, c.input())
			c.slow = 1
			c.next()
			c.is(v1alpha1.RolloutProgressing, c.status.Step, nodes, "")
		}
		c.slow = 0
		c.status, _ = Next(c.status, c.input())
		if c.is(v1alpha1.RolloutProgressing, 4, 10, "step 4 of 4"); c.status.Until != nil || c.status.Previous == nil {
			t.Errorf("the last step has until %v, and the previous revision %v", c.status.Until, c.status.Previous)
		}
		c.next()
		if c.is(v1alpha1.RolloutComplete, 0, 0, ""); c.status.Previous != nil || c.status.Revision != 2 || c.status.Hash != "hash" {
			t.Errorf("complete: %+v", c.status)
		}
	})
	t.Run("never takes the revision away from a node", func(t *testing.T) {
		c := begin(t, 10, on(5), on("10%"))
		c.slow = 0
		c.status, _ = Next(c.status, c.input())
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("halts until it is resumed", func(t *testing.T) {
		c := begin(t, 10, on(2), on(5))
		c.bad = 1
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes with revision 2 aren't healthy (node-1: broken): no other node changes until")
		c.bad, c.slow = 0, 0
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c.resumed = "2/1"
		c.slow = 1
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("goes on past failures that a user accepts", func(t *testing.T) {
		c := begin(t, 10, on(2), on(5))
		c.slow, c.bad, c.resumed = 0, 1, "2/1"
		c.next()
		c.is(v1alpha1.RolloutHalted, 2, 5, "")
	})
	t.Run("another step's annotation resumes nothing", func(t *testing.T) {
		c := begin(t, 10, on(2), on(5))
		c.slow, c.bad, c.resumed = 0, 1, "1/1"
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
	})
	t.Run("undoes", func(t *testing.T) {
		c := begin(t, 10, on(2))
		c.policy.OnFailure, c.bad = v1alpha1.RolloutUndo, 1
		c.next()
		if c.is(v1alpha1.RolloutUndone, 1, 2, "revision 1 runs again on all nodes"); *c.status.Until != 0 || c.status.Previous == nil {
			t.Errorf("%+v", c.status)
		}
		c.bad, c.slow, c.resumed = 0, 0, "2/1"
		c.next()
		c.is(v1alpha1.RolloutUndone, 1, 2, "")
	})
	t.Run("tolerates some", func(t *testing.T) {
		c := begin(t, 10, on(4), on(8))
		c.policy.MaxUnhealthy = intstr.FromString("30%")
		c.slow, c.bad = 0, 1
		c.next()
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
		c = begin(t, 10, on(4))
		c.policy.MaxUnhealthy = intstr.FromString("30%")
		c.bad = 2
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 4, "2 of 4 nodes")
	})
	t.Run("waits no longer than the limit", func(t *testing.T) {
		c := begin(t, 10, on(2))
		c.now = start.Add(time.Minute - time.Millisecond)
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 2, "")
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes")
	})
	t.Run("gives a node that joins a healthy step as long", func(t *testing.T) {
		step := on(2)
		step.UntilResumed = true
		c := begin(t, 10, step)
		c.slow, c.now = 0, start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "")
		c.slow, c.waiting = 1, c.now
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 2, ""); c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
		c.now = c.waiting.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes")
	})
	t.Run("pauses", func(t *testing.T) {
		step := on(2)
		step.Pause = &metav1.Duration{Duration: 10 * time.Minute}
		c := begin(t, 10, step, on(5))
		c.slow, c.healthy, c.now = 0, start.Add(30*time.Second), start.Add(time.Minute)
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 2, "after a pause of 10m0s"); c.again != 9*time.Minute+30*time.Second {
			t.Errorf("looks again after %s", c.again)
		}
		c.now = start.Add(10*time.Minute + 30*time.Second)
		c.status, _ = Next(c.status, c.input())
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("waits until it is resumed", func(t *testing.T) {
		step := on(2)
		step.UntilResumed = true
		c := begin(t, 10, step, on(5))
		c.slow, c.now = 0, start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "waits until you resume it")
		c.resumed, c.slow = "2/1", 1
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("is paused, and fails while it is", func(t *testing.T) {
		c := begin(t, 10, on(2), on(5))
		c.paused, c.slow = true, 0
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "the annotation bpfman.io/rollout-paused")
		c.bad = 1
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c = begin(t, 10, on(2), on(5))
		c.paused = true
		if c.next(); c.again != time.Minute {
			t.Errorf("looks after %s whether the nodes are healthy", c.again)
		}
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c = begin(t, 10, on(2), on(5))
		c.paused, c.slow = true, 0
		c.next()
		c.paused = false
		c.status, _ = Next(c.status, c.input())
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("reaches all nodes once if the policy loses or gets steps", func(t *testing.T) {
		c := begin(t, 10, on(1), on(2), on(5))
		c.slow = 0
		c.status, _ = Next(c.status, c.input())
		c.is(v1alpha1.RolloutProgressing, 2, 2, "")
		c.policy.Steps = c.policy.Steps[:1]
		c.status, _ = Next(c.status, c.input())
		if c.is(v1alpha1.RolloutProgressing, 3, 10, "step 3 of 3"); c.status.Until != nil {
			t.Errorf("the last step has until %v", *c.status.Until)
		}
		c.policy.Steps = []v1alpha1.RolloutStep{on(1), on(2), on(5), on(6)}
		c.status, _ = Next(c.status, c.input())
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
	})
	t.Run("begins when there is a node", func(t *testing.T) {
		c := begin(t, 0, on(1), on("50%"))
		c.slow, c.nodes = 0, 0
		in := c.input()
		in.Nodes.Matching = 2
		in.Now = start.Add(time.Hour)
		c.status, c.again = Next(c.status, in)
		if c.is(v1alpha1.RolloutProgressing, 1, 0, "waiting for a node"); c.again != 0 {
			t.Errorf("looks again after %s, without a node", c.again)
		}
		c.nodes, c.slow = 4, 1
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "on 1 of 4 nodes")
	})
	t.Run("is complete if no node matches", func(t *testing.T) {
		c := begin(t, 0, on(1))
		c.next()
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
	})
}
