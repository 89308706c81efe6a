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
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

var start = time.Unix(1000, 0)

// cluster simulates the nodes of an object. The health of each is that of the newest revision, once the node has it.
type cluster struct {
	t      *testing.T
	policy v1alpha1.RolloutPolicySpec
	// nodes are in the order of their positions, which are 10, 20, and so on. absent are matching nodes without an agent.
	nodes   []Health
	gone    map[int]bool
	absent  int
	now     time.Time
	memory  Memory
	paused  bool
	resumed string
	status  *v1alpha1.RolloutStatus
	again   time.Duration
}

func (c *cluster) input() Input {
	n := Nodes{Listed: true, Current: true, Matching: c.absent}
	var positions []int64
	for i, health := range c.nodes {
		position := int64(i+1) * 10
		if c.gone[i] {
			continue
		}
		n.Matching++
		n.Selected++
		positions = append(positions, position)
		if c.status == nil || !rollout.Changes(c.status, position) {
			continue
		}
		switch health {
		case Healthy:
			n.Healthy++
		case Waiting:
			n.Waiting++
			n.Names = append(n.Names, fmt.Sprintf("node-%d", i+1))
		case Failing:
			n.Failed++
			n.Names = append(n.Names, fmt.Sprintf("node-%d: broken", i+1))
		}
	}
	n.Positions = func() []int64 { return positions }
	return Input{
		Policies: []Policy{{Name: "staged", Spec: &c.policy}}, Hash: "hash", Nodes: n, Now: c.now, Memory: c.memory, Paused: c.paused, Resumed: c.resumed,
	}
}

// decide makes one decision.
func (c *cluster) decide() {
	d := Decide(c.status, c.input())
	c.status, c.again, c.memory = d.Status, d.Again, d.Memory
}

// next decides until nothing changes anymore.
func (c *cluster) next() {
	c.t.Helper()
	for range 2 * (len(c.policy.Steps) + 2) {
		before := c.status.Position() + string(c.status.State)
		c.decide()
		if before == c.status.Position()+string(c.status.State) {
			return
		}
	}
	c.t.Fatal("the rollout doesn't settle")
}

// all sets the health of all nodes.
func (c *cluster) all(health Health) {
	for i := range c.nodes {
		c.nodes[i] = health
	}
}

// is checks the state, the step, the number of nodes, and a part of the message.
func (c *cluster) is(state v1alpha1.RolloutState, step, nodes int32, words string) {
	c.t.Helper()
	s := c.status
	if s.State != state || s.Step != step || s.Nodes != nodes || !strings.Contains(s.Message, words) {
		c.t.Fatalf("%s, step %d on %d nodes: %q; want %s, step %d on %d nodes: %q", s.State, s.Step, s.Nodes, s.Message, state, step, nodes, words)
	}
	if settled := state == v1alpha1.RolloutProgressing || state == v1alpha1.RolloutComplete; !settled && problem.ToDo(problem.Reason(s.Problem)) == "" {
		c.t.Fatalf("%s: nothing is known about the problem %q", state, s.Problem)
	}
	want := int64(nodes)*10 + 1
	if nodes == 0 {
		want = 0
	}
	if len(c.gone) == 0 && state == v1alpha1.RolloutProgressing && int(step) <= len(c.policy.Steps) && (s.Until == nil || *s.Until != want) {
		c.t.Fatalf("until is %v, want %d", s.Until, want)
	}
}

func begun(t *testing.T, nodes int, steps ...v1alpha1.RolloutStep) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: make([]Health, nodes), gone: map[int]bool{}, now: start, policy: v1alpha1.RolloutPolicySpec{
		Steps: steps, TimeLimit: metav1.Duration{Duration: time.Minute}, OnFailure: v1alpha1.RolloutHalt,
	}}
	c.all(Waiting)
	c.status = Start(nil, v1alpha1.RecordedRevision{Number: 2, Hash: "hash"}, &v1alpha1.RolloutRevision{Revision: 1}, false, c.input())
	c.decide() // the new state is another event
	return c
}

func on(nodes any) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Nodes: intstr.Parse(fmt.Sprint(nodes))}
}

func TestDecide(t *testing.T) {
	t.Run("goes on when the nodes are healthy", func(t *testing.T) {
		c := begun(t, 10, on(1), on("25%"), on("50%"))
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "revision 2, step 1 of 4 on 1 of 10 nodes")
		if c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
		c.nodes[0] = Healthy
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 3, "")
		c.nodes[1] = Healthy
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 3, "")
		c.nodes[2] = Healthy
		c.next()
		c.is(v1alpha1.RolloutProgressing, 3, 5, "")
		c.nodes[3], c.nodes[4] = Healthy, Healthy
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 4, 10, "step 4 of 4"); c.status.Until != nil || c.status.Previous == nil {
			t.Errorf("the last step has until %v, and the previous revision %v", c.status.Until, c.status.Previous)
		}
		c.all(Healthy)
		c.next()
		if c.is(v1alpha1.RolloutComplete, 0, 0, ""); c.status.Previous != nil || c.status.Revision != 2 || c.status.Hash != "hash" {
			t.Errorf("complete: %+v", c.status)
		}
	})
	t.Run("never takes the revision away from a node", func(t *testing.T) {
		c := begun(t, 10, on(5), on("10%"))
		c.all(Healthy)
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
		c.nodes[4] = Waiting
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("halts until it is resumed", func(t *testing.T) {
		c := begun(t, 10, on(2), on(5))
		c.nodes[1] = Failing
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes with revision 2 aren't healthy (node-1; node-2: broken): no other node changes until")
		c.all(Healthy)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c.resumed = "2/1"
		c.all(Waiting)
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("goes on past failures that a user accepts", func(t *testing.T) {
		c := begun(t, 10, on(2), on(5))
		c.nodes[0], c.resumed = Failing, "2/1"
		c.next()
		c.is(v1alpha1.RolloutHalted, 2, 5, "")
	})
	t.Run("another step's annotation resumes nothing", func(t *testing.T) {
		c := begun(t, 10, on(2), on(5))
		c.nodes[0], c.resumed = Failing, "1/1"
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
	})
	t.Run("undoes", func(t *testing.T) {
		c := begun(t, 10, on(2))
		c.policy.OnFailure, c.nodes[0] = v1alpha1.RolloutUndo, Failing
		c.next()
		if c.is(v1alpha1.RolloutUndone, 1, 2, "revision 1 runs again on all nodes"); *c.status.Until != 0 || c.status.Previous == nil {
			t.Errorf("%+v", c.status)
		}
		c.all(Healthy)
		c.resumed = "2/1"
		c.next()
		c.is(v1alpha1.RolloutUndone, 1, 2, "")
	})
	t.Run("tolerates some", func(t *testing.T) {
		c := begun(t, 10, on(4), on(8))
		c.policy.MaxUnhealthy = intstr.FromString("30%")
		c.all(Healthy)
		c.nodes[0] = Failing
		c.next()
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
		c = begun(t, 10, on(4))
		c.policy.MaxUnhealthy = intstr.FromString("30%")
		c.nodes[0], c.nodes[1] = Failing, Failing
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 4, "2 of 4 nodes")
		c = begun(t, 10, on(4), on(8))
		c.policy.MaxUnhealthy = intstr.FromString("30%")
		c.all(Healthy)
		c.nodes[0], c.now = Waiting, start.Add(time.Minute)
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 8, "")
	})
	t.Run("waits no longer than the limit", func(t *testing.T) {
		c := begun(t, 10, on(2))
		c.nodes[0] = Healthy
		c.now = start.Add(time.Minute - time.Millisecond)
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 2, "")
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes with revision 2 aren't healthy (node-2)")
	})
	t.Run("gives a node that joins a healthy step as long", func(t *testing.T) {
		step := on(2)
		step.UntilResumed = true
		c := begun(t, 10, step)
		c.all(Healthy)
		c.now = start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "")
		c.nodes[0] = Waiting
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 2, ""); c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
		c.now = c.now.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "1 of 2 nodes")
	})
	t.Run("pauses", func(t *testing.T) {
		step := on(2)
		step.Pause = &metav1.Duration{Duration: 10 * time.Minute}
		c := begun(t, 10, step, on(5))
		c.next()
		c.nodes[0], c.nodes[1], c.now = Healthy, Healthy, start.Add(30*time.Second)
		c.next()
		c.now = start.Add(time.Minute)
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 2, "after a pause of 10m0s"); c.again != 9*time.Minute+30*time.Second {
			t.Errorf("looks again after %s", c.again)
		}
		c.now = start.Add(10*time.Minute + 30*time.Second)
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("pauses again if the operator restarts", func(t *testing.T) {
		step := on(2)
		step.Pause = &metav1.Duration{Duration: 10 * time.Minute}
		c := begun(t, 10, step, on(5))
		c.all(Healthy)
		c.next()
		c.memory, c.now = Memory{}, start.Add(time.Hour)
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 2, "after a pause of 10m0s"); c.again != 10*time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
	})
	t.Run("another operator's clock doesn't end the time limit", func(t *testing.T) {
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			c := begun(t, 10, on(2))
			c.memory, c.now = Memory{}, start.Add(ahead)
			c.next()
			if c.is(v1alpha1.RolloutProgressing, 1, 2, ""); c.again != time.Minute {
				t.Errorf("%s ahead, looks again after %s", ahead, c.again)
			}
			c.now = c.now.Add(time.Minute)
			c.next()
			c.is(v1alpha1.RolloutHalted, 1, 2, "2 of 2 nodes")
		}
	})
	t.Run("waits until it is resumed", func(t *testing.T) {
		step := on(2)
		step.UntilResumed = true
		c := begun(t, 10, step, on(5))
		c.nodes[0], c.nodes[1], c.now = Healthy, Healthy, start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "waits until you resume it")
		c.resumed = "2/1"
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("is paused, and fails while it is", func(t *testing.T) {
		c := begun(t, 10, on(2), on(5))
		c.paused = true
		c.all(Healthy)
		c.next()
		c.is(v1alpha1.RolloutPaused, 1, 2, "the annotation bpfman.io/rollout-paused")
		c.nodes[0] = Failing
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c = begun(t, 10, on(2), on(5))
		c.paused = true
		if c.next(); c.again != time.Minute {
			t.Errorf("looks after %s whether the nodes are healthy", c.again)
		}
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 2, "")
		c = begun(t, 10, on(2), on(5))
		c.paused = true
		c.all(Healthy)
		c.next()
		c.paused = false
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 5, "")
	})
	t.Run("follows the policy's limit on run times", func(t *testing.T) {
		c := begun(t, 10, on(1))
		c.policy.MaxRunTimePercent = 150
		if c.decide(); c.status.MaxRunTimePercent != 150 {
			t.Errorf("the limit is %d %%", c.status.MaxRunTimePercent)
		}
	})
	t.Run("reaches all nodes once if the policy loses or gets steps", func(t *testing.T) {
		c := begun(t, 10, on(1), on(2), on(5))
		c.all(Healthy)
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 2, "")
		c.policy.Steps = c.policy.Steps[:1]
		c.decide()
		if c.is(v1alpha1.RolloutProgressing, 3, 10, "step 3 of 3"); c.status.Until != nil {
			t.Errorf("the last step has until %v", *c.status.Until)
		}
		c.policy.Steps = []v1alpha1.RolloutStep{on(1), on(2), on(5), on(6)}
		c.decide()
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
	})
}

// The first revision that a policy sees is complete if nodes already ran it, and so is one that they still run. All others
// begin in the first step.
func TestStart(t *testing.T) {
	complete := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Revision: 1, Hash: "before"}
	for name, test := range map[string]struct {
		was           *v1alpha1.RolloutStatus
		adopted, back bool
		want          v1alpha1.RolloutState
	}{
		"new":                          {nil, false, false, v1alpha1.RolloutProgressing},
		"adopted":                      {nil, true, false, v1alpha1.RolloutComplete},
		"adopted after a contest":      {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutContested}, true, false, v1alpha1.RolloutComplete},
		"changed":                      {complete, false, false, v1alpha1.RolloutProgressing},
		"changed, and ran before":      {complete, true, false, v1alpha1.RolloutProgressing},
		"changed back":                 {complete, false, true, v1alpha1.RolloutComplete},
		"changed back, and ran before": {complete, true, true, v1alpha1.RolloutComplete},
	} {
		c := begun(t, 3, on(1))
		in := c.input()
		in.Adopted = test.adopted
		got := Start(test.was, v1alpha1.RecordedRevision{Number: 2, Hash: "hash"}, &v1alpha1.RolloutRevision{Revision: 1}, test.back, in)
		if got.State != test.want || got.Revision != 2 || got.Hash != "hash" || got.Policy != "staged" || (got.Previous == nil) != (test.want == v1alpha1.RolloutComplete) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// While another revision can't be rolled out, nodes keep what they run. Taken back, the edit has no effect on a revision that all
// nodes run, and one that was undone is tried again from the first step.
func TestContest(t *testing.T) {
	c := begun(t, 3, on(1))
	in := c.input()
	refused := Contest(nil, "staged", problem.Note{Text: "exceeded quota"})
	if d := Decide(refused, in); !d.Begins || refused.Message != "exceeded quota" || !refused.State.Stalled() {
		t.Errorf("%+v, and then %+v", refused, d)
	}
	everywhere := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Hash: in.Hash, Revision: 2}
	if d := Decide(Contest(everywhere, "staged", problem.Note{Text: "exceeded quota"}), in); d.Begins || d.Status.State != v1alpha1.RolloutComplete || d.Status.Until != nil || d.Status.Message != "" {
		t.Errorf("complete: %+v", d)
	}
	c.all(Healthy)
	c.policy.OnFailure, c.nodes[0] = v1alpha1.RolloutUndo, Failing
	c.next()
	c.is(v1alpha1.RolloutUndone, 1, 1, "")
	c.policy.MaxUnhealthy = intstr.FromInt32(1) // it would leave the first step after the time limit
	if d := Decide(Contest(c.status, "staged", problem.Note{Text: "exceeded quota"}), c.input()); !d.Begins {
		t.Errorf("undone: %+v", d.Status)
	}
}

// What nodes run that don't have the newest revision yet.
func TestBefore(t *testing.T) {
	previous := &v1alpha1.RolloutRevision{Revision: 1}
	for name, test := range map[string]struct {
		was    *v1alpha1.RolloutStatus
		number int64
		stored *v1alpha1.RolloutRevision
	}{
		"nothing":                        {nil, 0, nil},
		"a contest from the beginning":   {&v1alpha1.RolloutStatus{State: v1alpha1.RolloutContested}, 0, nil},
		"complete":                       {&v1alpha1.RolloutStatus{Revision: 2}, 2, nil},
		"in a step":                      {&v1alpha1.RolloutStatus{Revision: 2, Until: new(int64(7)), Previous: previous}, 1, previous},
		"in the last step":               {&v1alpha1.RolloutStatus{Revision: 2, Previous: previous}, 1, previous},
		"in a step of the first version": {&v1alpha1.RolloutStatus{Revision: 1, Until: new(int64(7))}, 0, nil},
	} {
		if number, stored := Before(test.was); number != test.number || stored != test.stored {
			t.Errorf("%s: revision %d, %v", name, number, stored)
		}
	}
}

// What isn't there isn't healthy.
func TestAbsentNodes(t *testing.T) {
	t.Run("begins when there is a node", func(t *testing.T) {
		c := begun(t, 0, on(1), on("50%"))
		c.absent, c.now = 2, start.Add(time.Hour)
		c.decide()
		if c.is(v1alpha1.RolloutProgressing, 1, 0, "waiting for a node"); c.again != 0 {
			t.Errorf("looks again after %s, without a node", c.again)
		}
		c.nodes = []Health{Waiting, Waiting, Waiting, Waiting}
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "on 1 of 4 nodes")
	})
	t.Run("isn't complete if no node matches", func(t *testing.T) {
		c := begun(t, 0, on(1))
		c.now = start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 0, "waiting for a node")
		c.nodes = []Health{Waiting, Waiting, Waiting}
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "on 1 of 3 nodes")
	})
	t.Run("stays halted while no node matches", func(t *testing.T) {
		c := begun(t, 3, on(1))
		c.nodes[0] = Failing
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 1, "")
		nodes := c.nodes
		c.nodes = nil
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 1, "")
		c.nodes = nodes
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 1, "")
	})
	t.Run("waits while no node matches, and then gives them the limit", func(t *testing.T) {
		c := begun(t, 3, on(1))
		nodes := c.nodes
		c.nodes, c.now = nil, start.Add(time.Hour)
		c.next()
		c.is(v1alpha1.RolloutProgressing, 1, 1, "waiting for a node")
		c.nodes = nodes
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 1, "on 1 of 3 nodes"); c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
	})
	t.Run("halts if the canary is replaced before it was healthy", func(t *testing.T) {
		c := begun(t, 4, on(1), on(2))
		c.next()
		c.gone[0] = true
		c.nodes = append(c.nodes, Waiting)
		c.next()
		if c.is(v1alpha1.RolloutProgressing, 1, 1, ""); c.again != time.Minute {
			t.Errorf("looks again after %s", c.again)
		}
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 1, "1 of 1 nodes with revision 2 aren't healthy (1 deleted, unreachable, or without an agent)")
	})
	t.Run("halts if the change kills some of the last nodes", func(t *testing.T) {
		c := begun(t, 4, on(1))
		c.all(Healthy)
		c.decide()
		c.is(v1alpha1.RolloutProgressing, 2, 4, "")
		c.gone[3], c.absent = true, 1 // it can't be reached
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 4, "")
		c.now = start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 2, 4, "1 of 4 nodes")
	})
	t.Run("goes on if nodes are deleted that the policy doesn't require anymore", func(t *testing.T) {
		c := begun(t, 8, on("50%"))
		c.all(Healthy)
		for i := range 4 {
			c.gone[2*i] = true
		}
		c.next()
		c.is(v1alpha1.RolloutComplete, 0, 0, "")
	})
	t.Run("goes on when a user accepts that nodes are gone", func(t *testing.T) {
		c := begun(t, 4, on(1), on(2))
		c.gone[0], c.now = true, start.Add(time.Minute)
		c.next()
		c.is(v1alpha1.RolloutHalted, 1, 1, "")
		c.resumed = "2/1"
		c.next()
		c.is(v1alpha1.RolloutProgressing, 2, 2, "")
	})
	t.Run("nothing is decided before everything is listed", func(t *testing.T) {
		for _, state := range []v1alpha1.RolloutState{v1alpha1.RolloutProgressing, v1alpha1.RolloutPaused, v1alpha1.RolloutHalted} {
			c := begun(t, 3, on(1))
			c.status.State = state
			in := c.input()
			in.Nodes = Nodes{Current: true}
			in.Now = start.Add(time.Hour)
			if d := Decide(c.status, in); d.Status != c.status || d.Begins {
				t.Errorf("%s becomes %+v", state, d)
			}
			in.Hash = "another"
			if d := Decide(c.status, in); d.Status != c.status || d.Begins {
				t.Errorf("%s with another revision becomes %+v", state, d)
			}
		}
	})
}
