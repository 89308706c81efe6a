// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"math/rand/v2"
	"slices"

	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Limits of what is drawn.
const (
	mostNodes      = 4
	mostOperators  = 2
	mostBursts     = 4
	mostOperations = 5
	mostFaults     = 3
	// longestPause is the maximum delay between two steps, in milliseconds.
	longestPause = 60_000
)

// Draw draws a plan from a seed. Faults happen at events that were seen. Without any, there are no faults at events.
func Draw(seed uint64, seen []simulation.Event) Plan {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // it must be reproducible
	p := Plan{Seed: seed, Nodes: 1 + r.IntN(mostNodes), Operators: 1 + r.IntN(mostOperators)}
	m := chaos.NewModel(abilities(), nodes(p))
	for range 1 + r.IntN(mostBursts) {
		var burst []Step
		for range 1 + r.IntN(mostOperations) {
			if s, ok := drawOperation(r, m); ok {
				burst = append(burst, Step{Operation: &s})
			}
		}
		for range r.IntN(mostFaults + 1) {
			if s, ok := drawFault(r, p, seen); ok {
				burst = slices.Insert(burst, r.IntN(len(burst)+1), s)
			}
		}
		m.Settle()
		p.Steps = append(append(p.Steps, burst...), Step{Operation: &chaos.Step{Settled: true}})
	}
	return p
}

// drawOperation draws an operation that is possible, and applies it to the model.
func drawOperation(r *rand.Rand, m *chaos.Model) (chaos.Step, bool) {
	const tries = 20
	for range tries {
		o := chaos.DrawOperation(r)
		s, ok := o.Draw(r, m)
		s.Do, s.After = o.Name, r.IntN(longestPause)>>r.IntN(10)
		if !ok || Operations[o.Name] == nil || s.Pod != nil && s.Pod.Of != "" {
			continue
		}
		if m.Apply(s) {
			return s, true
		}
	}
	return chaos.Step{}, false
}
