// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Play plays a plan, and returns the first invariant that is broken, or nil.
func Play(t *testing.T, p Plan, invariants []Invariant, tally *Tally) (broken *BrokenError) {
	t.Helper()
	var bubble string
	defer func() {
		if leak := leaked(recover(), bubble); leak != nil && broken == nil {
			broken = leak
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		bubble = bubbleOf(stacks(1<<10, false))
		start := time.Now()
		c := newCluster(t, p, invariants, tally)
		var armed []func()
		for _, s := range p.Steps {
			if c.Broken() != nil {
				break
			}
			switch {
			case s.Fault != nil:
				armed = append(armed, c.inject(s))
			case s.Operation.Settled:
				c.wait(milliseconds(s.Operation.After))
				for _, disarm := range armed {
					disarm()
				}
				armed = nil
				c.rest()
			default:
				c.operate(s)
			}
		}
		for _, disarm := range armed {
			disarm()
		}
		if c.Broken() == nil {
			c.rest()
		}
		broken = c.Broken()
		tally.pass(time.Since(start))
	})
	return broken
}

var goroutinesEnd = Invariant{
	Name:     "goroutines end",
	Sentence: "What a component starts ends with it.",
	Watch:    func(*Cluster) Checks { return Checks{} },
}

// leaked returns the product's goroutines of a bubble that outlived all components, for which testing/synctest panics. Those of
// controller-runtime don't count: they stay if a process ends while its caches start, or while a watch passes on an event.
func leaked(panicked any, bubble string) *BrokenError {
	if panicked == nil {
		return nil
	}
	if !strings.Contains(fmt.Sprint(panicked), "blocked goroutines remain") {
		panic(panicked)
	}
	var left []string
	const most = 16 << 20
	for stack := range strings.SplitSeq(stacks(most, true), "\n\n") {
		if bubbleOf(stack) == bubble && strings.Contains(stack, "bpfman/bpfman-operator/") {
			left = append(left, stack)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &BrokenError{Invariant: &goroutinesEnd, Err: errors.New(strings.Join(left, "\n"))}
}

// stacks returns the beginning of the stack of this goroutine, or of all of them.
func stacks(most int, all bool) string {
	text := make([]byte, most)
	return string(text[:runtime.Stack(text, all)])
}

var bubbles = regexp.MustCompile(`^[^\n]*(synctest bubble \d+)`)

// bubbleOf returns the bubble of testing/synctest that a stack is of, or "".
func bubbleOf(stack string) string {
	if found := bubbles.FindStringSubmatch(stack); found != nil {
		return found[1]
	}
	return ""
}

// inject begins a fault, or has it begin at its event. It returns what prevents it from beginning.
func (c *Cluster) inject(s Step) (disarm func()) {
	kind := faultOf(s.Fault.Kind)
	if kind == nil {
		c.tb.Fatalf("there is no fault %q", s.Fault.Kind)
	}
	begin := func(ctx context.Context, e simulation.Event) error {
		f := *s.Fault
		f.server = kind.Server
		if e.Actor != "" {
			f.Target = e.Actor
		}
		c.tally.fault(kind.Name)
		c.note("FAULT %s", Step{Fault: &f, At: s.At})
		c.disturb(f.of())
		err := kind.Begin(ctx, c, f, e)
		c.disturb(f.of())
		return err
	}
	if s.At != nil {
		return c.OnEvent(simulation.Nth(s.At.Nth, s.At.match(), begin))
	}
	if err := begin(context.Background(), simulation.Event{}); err != nil {
		c.tb.Fatal(err)
	}
	return func() {}
}

// operate does an operation, which may wait for an event.
func (c *Cluster) operate(s Step) {
	c.wait(milliseconds(s.Operation.After))
	if s.At != nil {
		var happened atomic.Bool
		remove := c.OnEvent(simulation.Nth(s.At.Nth, s.At.match(), func(context.Context, simulation.Event) error {
			happened.Store(true)
			return nil
		}))
		for start := time.Now(); !happened.Load() && time.Since(start) < time.Minute && c.Broken() == nil; {
			c.wait(time.Second)
		}
		remove()
	}
	for s.Operation.Do == fail && c.API.Get("nodes", "", c.canary()) == nil && c.Broken() == nil {
		c.wait(time.Second)
	}
	do := Operations[s.Operation.Do]
	if do == nil || !c.apply(*s.Operation) {
		return // shortened plans have operations that are no longer possible
	}
	c.note("USER %s", s)
	c.mu.Lock()
	switch o := s.Operation.Object; {
	case o != nil:
		c.changed[o.Name], c.operated[o.Name] = true, time.Now()
	case s.Operation.Do == policies:
		c.changed[""] = true
	}
	if s.Operation.Pod != nil || s.Operation.Target != "" { // a pod or an interface
		c.changed[points] = true
	}
	c.changed[failing] = c.changed[failing] || s.Operation.Do == fail
	c.operated[""] = time.Now()
	c.changed[s.Operation.Node] = c.changed[s.Operation.Node] || s.Operation.Do == labels
	c.mu.Unlock()
	if err := do(c.tb.Context(), c, *s.Operation); err != nil {
		c.tb.Fatalf("%s: %v", s, err)
	}
}

func (c *Cluster) apply(s chaos.Step) bool {
	c.checking.Lock()
	defer c.checking.Unlock()
	return c.Model.Apply(s)
}
