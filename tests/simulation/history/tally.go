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
	// seen contains one event of each component, verb and resource, and order their order.
	seen  map[simulation.Event]bool
	order []simulation.Event
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{faults: map[string]int{}, checks: map[string]int{}, seen: map[simulation.Event]bool{}}
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

func (t *Tally) see(e simulation.Event) {
	if strings.HasPrefix(e.Resource, "/") {
		return
	}
	e = simulation.Event{Actor: e.Actor, Verb: e.Verb, Resource: e.Resource, Subresource: e.Subresource}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.seen[e] {
		t.seen[e] = true
		t.order = append(t.order, e)
	}
}

// Seen returns the events that faults can happen at.
func (t *Tally) Seen() []simulation.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
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
