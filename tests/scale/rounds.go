// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bpfman/bpfman-operator/internal/figures"
)

// background is the CPU time that the API server uses while nothing is measured.
type background struct {
	server process
	// rate is the CPU time in seconds per second.
	rate float64
}

const (
	// backgroundFor is how long the API server is observed before a rollout.
	backgroundFor = 5 * time.Second
	// quietAfter is how long the API server must be idle afterwards, because a write has effects after its
	// response.
	quietAfter = time.Second
	quietMost  = 30 * time.Second
)

func measureBackground(ctx context.Context, server process) (background, error) {
	used, took, err := usage(server, func() error { return sleep(ctx, backgroundFor) })
	return background{server, used.Seconds() / took.Seconds()}, err
}

// usage returns the CPU time that a process uses while do runs, and the elapsed time.
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

// cost returns the additional CPU time that the API server uses because of do, until it is idle again.
func (b background) cost(ctx context.Context, do func() error) (time.Duration, error) {
	used, took, err := usage(b.server, func() error {
		if err := do(); err != nil {
			return err
		}
		return b.quiet(ctx)
	})
	return used - time.Duration(b.rate*float64(took)), err
}

// quiet waits until the API server is as idle as before.
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

// roundSettles is how long to wait at the end of a round for the effects of a write.
const roundSettles = 2 * time.Second

// work is the API server's work for something.
type work struct {
	cpu       time.Duration
	allocated float64 // in KiB
	took      time.Duration
	// collections is the number of garbage collections. One costs as much as hundreds of writes.
	collections float64
}

// work measures the API server's work while do runs. It starts with a garbage collection.
func (c *controlPlane) work(ctx context.Context, do func() error) (w work, err error) {
	before, err := c.collected(ctx, 1)
	if err != nil {
		return work{}, err
	}
	w.cpu, w.took, err = usage(c.apiServer, func() error { return errors.Join(do(), sleep(ctx, roundSettles)) })
	if err != nil {
		return work{}, err
	}
	after, err := c.metrics(ctx)
	if err != nil {
		return work{}, err
	}
	w.allocated = (value(after, "go_memstats_alloc_bytes_total") - value(before, "go_memstats_alloc_bytes_total")) / 1024
	w.collections = value(after, "go_gc_cycles_total_gc_cycles_total") - value(before, "go_gc_cycles_total_gc_cycles_total")
	return w, nil
}

// writeCost is the API server's cost of writing a report: CPU time in microseconds, and allocated memory in KiB,
// which the garbage collector has to free.
type writeCost struct{ cpu, allocated float64 }

// rounds measures writes, as the median of rounds. In each round, nodes get their reports, with two writes each.
// Deleting them isn't measured. An idle period of the same length measures what the API server does anyway. Rounds
// with a garbage collection don't count, because a round is too short to include a representative share of it. The
// next round is shorter then.
func (b *bench) rounds(ctx context.Context, r *reporter, nodes int) (writeCost, error) {
	// A real agent would remove unexpected reports of its node.
	first := 1 + b.agents
	var writes float64
	costs := make([]writeCost, 0, b.repeats)
	for tried := 0; len(costs) < b.repeats; tried++ {
		if tried == 4*b.repeats {
			return writeCost{}, fmt.Errorf("the API server collected garbage in %d of %d rounds", tried-len(costs), tried)
		}
		last := min(b.nodes, first+nodes)
		writes = float64(2 * (last - first) * len(r.owners))
		busy, err := b.control.work(ctx, func() error {
			_, err := r.nodes(ctx, first, last)
			return err
		})
		if err != nil {
			return writeCost{}, err
		}
		if err := r.remove(ctx, first, last); err != nil {
			return writeCost{}, err
		}
		if err := sleep(ctx, roundSettles); err != nil {
			return writeCost{}, err
		}
		if busy.collections > 0 {
			nodes = max(roundNodesToAll, nodes/2) // with a small cluster, the API server collects garbage more often
			continue
		}
		idle, err := b.control.work(ctx, func() error { return sleep(ctx, busy.took-roundSettles) })
		if err != nil {
			return writeCost{}, err
		}
		if idle.collections > 0 {
			continue
		}
		costs = append(costs, writeCost{
			float64((busy.cpu - idle.cpu).Microseconds()) / writes, (busy.allocated - idle.allocated) / writes,
		})
	}
	b.say("  rounds of %.0f writes at last, µs and KiB a write: %.0f", writes, costs)
	return writeCost{
		figures.Median(costs, func(c writeCost) float64 { return c.cpu }), figures.Median(costs, func(c writeCost) float64 { return c.allocated }),
	}, nil
}
