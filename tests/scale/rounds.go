// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bpfman/bpfman-operator/tests/figures"
)

// background is how much processor time the API server takes while nothing is measured.
type background struct {
	server process
	// rate is in seconds of processor time a second.
	rate float64
}

const (
	// backgroundFor is how long the API server is looked at before each round.
	backgroundFor = 2 * time.Second
	// quietAfter is how long it is to have nothing to do at the end of a round: what a write leads to isn't done with
	// its answer.
	quietAfter = time.Second
	quietMost  = 30 * time.Second
)

func measureBackground(ctx context.Context, server process) (background, error) {
	used, took, err := usage(server, func() error { return sleep(ctx, backgroundFor) })
	return background{server, used.Seconds() / took.Seconds()}, err
}

// usage is the processor time that a process uses while do runs, and how long that took.
func usage(server process, do func() error) (used, took time.Duration, err error) {
	before, err := server.cpu()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	after, err := server.cpu()
	return after - before, took, err
}

// cost is the processor time that do costs the API server, until it has nothing more to do than before.
func (b background) cost(ctx context.Context, do func() error) (time.Duration, error) {
	used, took, err := usage(b.server, func() error {
		if err := do(); err != nil {
			return err
		}
		return b.quiet(ctx)
	})
	return used - time.Duration(b.rate*float64(took)), err
}

// quiet waits until the API server is as it was before.
func (b background) quiet(ctx context.Context) error {
	const tolerated = 0.05
	for end := time.Now().Add(quietMost); time.Now().Before(end); {
		used, took, err := usage(b.server, func() error { return sleep(ctx, quietAfter) })
		if err != nil {
			return err
		}
		if used.Seconds()/took.Seconds() < b.rate+tolerated {
			return nil
		}
	}
	return fmt.Errorf("the API server is still at work %v after what was measured", quietMost)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rounds measures what the write of a report costs the API server, in microseconds of processor time: the median of
// rounds in each of which nodes get their reports, two writes each, and lose them again, which isn't measured.
func (b *bench) rounds(ctx context.Context, r *reporter, nodes int) (float64, error) {
	// A real agent would remove what its node isn't to have.
	first := 1 + b.agents
	last := min(b.nodes, first+nodes)
	writes := 2 * (last - first) * len(r.owners)
	costs := make([]float64, 0, b.repeats)
	for range b.repeats {
		before, err := measureBackground(ctx, b.control.apiServer)
		if err != nil {
			return 0, err
		}
		cost, err := before.cost(ctx, func() error {
			_, err := r.nodes(ctx, first, last)
			return err
		})
		if err != nil {
			return 0, err
		}
		costs = append(costs, float64(cost.Microseconds())/float64(writes))
		if err := r.remove(ctx, first, last); err != nil {
			return 0, err
		}
		if err := before.quiet(ctx); err != nil {
			return 0, err
		}
	}
	b.say("  rounds of %d writes, µs a write: %.0f", writes, costs)
	return figures.Median(costs, func(c float64) float64 { return c }), nil
}
