// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/tests/node"
)

// tally counts what was done in a run.
type tally struct {
	done   map[string]int
	bursts int
	times  []time.Duration
}

func newTally() *tally { return &tally{done: map[string]int{}} }

func (c *tally) count(s Step) {
	name := s.Do
	if f := faultOf(s.Do); f != nil && s.Target != "" {
		name += " " + s.Target
	}
	if s.Object != nil && operationOf(s.Do) != nil {
		name += ": " + s.Object.Kind
	}
	c.done[name]++
}

func (c *tally) settled(d time.Duration) {
	c.bursts++
	c.times = append(c.times, d)
}

func (c *tally) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d bursts passed", c.bursts)
	if len(c.times) > 0 {
		sorted := slices.Sorted(slices.Values(c.times))
		fmt.Fprintf(&text, ", settled after %.1f s in the median, %.1f s at most", sorted[len(sorted)/2].Seconds(), sorted[len(sorted)-1].Seconds())
	}
	text.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		fmt.Fprintf(&text, "%5d  %s\n", c.done[name], name)
	}
	return text.String()
}

// save writes the tally next to the recording, for tables of several runs.
func (c *tally) save(t *testing.T) {
	t.Helper()
	if run.file == "" {
		return
	}
	seconds := make([]float64, 0, len(c.times))
	for _, d := range c.times {
		seconds = append(seconds, d.Seconds())
	}
	text, err := json.Marshal(map[string]any{"seed": run.seed, "passed": !t.Failed(), "bursts": c.bursts, "done": c.done, "settled": seconds})
	if err != nil {
		t.Error(err)
		return
	}
	if err := os.WriteFile(strings.TrimSuffix(run.file, ".json")+".tally.json", text, 0o600); err != nil {
		t.Error(err)
	}
}

// usage contains the resources that the components on a node use.
type usage map[string]node.Usage

// watched are the components whose resources must not grow.
var watched = []string{node.Agent, node.CSI, node.Inspector, node.Operator, node.Daemon}

// baseline returns the resources of each node's components at the start.
func (w *world) baseline(ctx context.Context, t *testing.T) map[string]usage {
	t.Helper()
	all := map[string]usage{}
	for _, name := range w.m.Nodes {
		survey, err := ask[node.Survey](ctx, w, name, "survey")
		if err != nil {
			t.Fatal(err)
		}
		all[name] = usage{}
		for _, u := range survey.Processes {
			if slices.Contains(watched, u.Name) {
				all[name][u.Name] = u
			}
		}
	}
	return all
}

// Limits for the growth of a component's resources between times with the same state.
// Connections vary, and Go returns memory with a delay.
const (
	moreFiles   = 12
	moreMemory  = 40 << 20
	moreThreads = 8
)

// compare checks that the components use no more resources than at the start.
func (w *world) compare(ctx context.Context, t *testing.T, before map[string]usage) {
	t.Helper()
	now := w.baseline(ctx, t)
	for _, name := range w.m.Nodes {
		for _, component := range watched {
			was, is := before[name][component], now[name][component]
			t.Logf("%s on %s: %d files, %d threads, %.1f MB before; %d files, %d threads, %.1f MB after (process %d, then %d)", component, name,
				was.Files, was.Threads, float64(was.Memory)/1e6, is.Files, is.Threads, float64(is.Memory)/1e6, was.PID, is.PID)
			if was.PID == 0 || is.PID == 0 {
				continue // the operator runs on one node
			}
			// The daemon caches data about each pulled image in memory, and starts with little
			// memory.
			if is.Files > was.Files+moreFiles || is.Threads > was.Threads+moreThreads || (is.Memory > was.Memory+moreMemory && component != node.Daemon) {
				t.Errorf("%s on %s takes more than at the beginning", component, name)
			}
		}
	}
}
