// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/chaos"
)

// Limits of what is drawn.
const (
	mostNodes     = 4
	mostOperators = 2
	mostBursts    = 4
)

// swarm is what a history is made of. If each history had a bit of everything, faults would hide each other's effects, and nothing
// would happen often in one history. So each seed leaves out most kinds of faults and some kinds of operations, and draws how
// frequent the others are.
type swarm struct {
	// faults contains each kind of fault as often as its rate.
	faults  []*FaultKind
	reboots bool
	// without contains the operations that are left out.
	without map[string]bool
	// Limits of a burst. A pause is between two operations.
	mostOperations, mostFaults int
	longestPause               time.Duration
}

func drawSwarm(r *rand.Rand) swarm {
	s := swarm{
		without: map[string]bool{}, mostOperations: oneOf(r, 2, 5, 10), mostFaults: oneOf(r, 1, 3, 8),
		reboots: r.IntN(4) == 0, longestPause: oneOf(r, time.Second, 10*time.Second, time.Minute, 5*time.Minute),
	}
	for i := range Faults {
		if r.IntN(4) == 0 || len(s.faults) == 0 && i == len(Faults)-1 {
			s.faults = append(s.faults, slices.Repeat([]*FaultKind{&Faults[i]}, oneOf(r, 1, 2, 8))...)
		}
	}
	for _, o := range chaos.Operations {
		s.without[o.Name] = Operations[o.Name] == nil || r.IntN(4) == 0 && o.Name != create
	}
	return s
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// Draw draws a plan from a seed.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // it must be reproducible
	p := Plan{Seed: seed, Nodes: 1 + r.IntN(mostNodes), Operators: 1 + r.IntN(mostOperators)}
	p.Alone, p.Images = r.IntN(4) > p.Operators, r.IntN(2) == 0
	p.Latency.Duration = oneOf(r, 0, 0, 100*time.Millisecond, 500*time.Millisecond)
	s := drawSwarm(r)
	m := chaos.NewModel(abilities(), nodes(p))
	for n := range 1 + r.IntN(mostBursts) {
		var burst []Step
		first := 0
		if s.reboots && n > 0 && r.IntN(2) == 0 {
			burst, first = append(burst, drawReboot(r, p, m)), 1
		} else {
			burst = s.operations(r, m)
		}
		for range r.IntN(s.mostFaults + 1) {
			burst = slices.Insert(burst, first+r.IntN(len(burst)+1-first), s.fault(r, p, m))
		}
		m.Settle()
		// Faults at events go on for a while after the last operation.
		p.Steps = append(append(p.Steps, burst...), Step{Operation: &chaos.Step{Settled: true, After: s.pause(r)}})
	}
	return p
}

// drawReboot draws a reboot in a cluster that is at rest, without an operation at the same time: a node that reboots undoes what it
// hasn't confirmed, and what it loads depends on how far a change has got.
func drawReboot(r *rand.Rand, p Plan, m *chaos.Model) Step {
	fault := &Fault{Kind: reboot.Name, Target: oneOf(r, nodes(p)...)}
	fault.For.Duration = drawDuration(r, reboot.Shortest, reboot.Longest)
	m.Apply(chaos.Step{Do: chaos.Reboot, Node: fault.Target})
	return Step{Fault: fault}
}

func (s swarm) operations(r *rand.Rand, m *chaos.Model) (steps []Step) {
	for range 1 + r.IntN(s.mostOperations) {
		if o, ok := s.operation(r, m); ok {
			steps = append(steps, Step{Operation: &o})
		}
	}
	return steps
}

// pause draws a pause in milliseconds. It prefers short ones.
func (s swarm) pause(r *rand.Rand) int {
	return r.IntN(int(s.longestPause.Milliseconds())) >> r.IntN(10)
}

// operation draws an operation that is possible, and applies it to the model.
func (s swarm) operation(r *rand.Rand, m *chaos.Model) (chaos.Step, bool) {
	const tries = 40
	for range tries {
		o := chaos.DrawOperation(r)
		step, ok := o.Draw(r, m)
		step.Do, step.After = o.Name, s.pause(r)
		if !ok || s.without[o.Name] || step.Pod != nil && step.Pod.Of != "" {
			continue
		}
		if m.Apply(step) {
			return step, true
		}
	}
	return chaos.Step{}, false
}

// fault draws a fault. Those that can happen at an event mostly do.
func (s swarm) fault(r *rand.Rand, p Plan, m *chaos.Model) Step {
	kind := s.faults[r.IntN(len(s.faults))]
	fault := &Fault{Kind: kind.Name}
	if kind.Longest > 0 {
		fault.For.Duration = drawDuration(r, kind.Shortest, kind.Longest)
	}
	if (kind.Requests || kind.Calls) && (kind.Targets == nil || r.IntN(4) > 0) {
		return Step{Fault: fault, At: drawAddress(r, p, kind, users(m))}
	}
	fault.Target = oneOf(r, kind.Targets(p)...)
	return Step{Fault: fault}
}

// drawDuration prefers short ones.
func drawDuration(r *rand.Rand, shortest, longest time.Duration) time.Duration {
	longest = max(shortest+1, longest/time.Duration(1<<r.IntN(8)))
	return (shortest + time.Duration(r.Int64N(int64(longest-shortest)+1))).Round(100 * time.Millisecond)
}

// users returns the resources of the objects.
func users(m *chaos.Model) []string {
	used := map[string]bool{}
	for _, o := range m.Objects {
		used[o.Kind] = true
	}
	var all []string
	for _, kind := range v1alpha1.UserKinds {
		if used[kind.Name] {
			all = append(all, kind.Resource())
		}
	}
	return all
}
