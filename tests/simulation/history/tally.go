// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Tally counts what was played.
type Tally struct {
	mu        sync.Mutex
	histories int
	played    time.Duration
	faults    map[string]int
	checks    map[string]int
	// steps gets the address of each write and call, while it isn't nil, and counts the number of those with the same fields.
	steps  []Address
	counts map[Address]int
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{faults: map[string]int{}, checks: map[string]int{}}
}

func (t *Tally) check(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks[name]++
}

func (t *Tally) fault(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[name]++
}

func (t *Tally) pass(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.histories++
	t.played += d
}

// record returns the addresses of the writes and calls of components while do plays a history.
func (t *Tally) record(do func()) []Address {
	t.mu.Lock()
	t.counts = map[Address]int{}
	t.mu.Unlock()
	do()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = nil
	return t.steps
}

func (t *Tally) step(e simulation.Event) {
	if !e.Writes() || e.Resource == "leases" || e.Resource == "events" || strings.HasPrefix(e.Resource, "/") {
		return
	}
	a := Address{Actor: e.Actor, Verb: e.Verb, Resource: e.Resource, Subresource: e.Subresource, Done: e.Done}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts != nil {
		t.counts[a]++
		a.Nth = t.counts[a]
		t.steps = append(t.steps, a)
	}
}

func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := []string{fmt.Sprintf("%d histories, %.1f simulated hours", t.histories, t.played.Hours()), "faults:"}
	for _, name := range slices.Sorted(maps.Keys(t.faults)) {
		lines = append(lines, fmt.Sprintf("  %7d  %s", t.faults[name], name))
	}
	lines = append(lines, "checks of invariants:")
	for _, name := range slices.Sorted(maps.Keys(t.checks)) {
		lines = append(lines, fmt.Sprintf("  %7d  %s", t.checks[name], name))
	}
	return strings.Join(lines, "\n")
}
