// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command go-target calls main.getCount at an interval: something for a uprobe to be
// attached to. With --orders it also calls main.stock, main.price and main.charge each time,
// of which one is slow. Its symbols must not be stripped.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// noPreemption keeps Go's runtime from interrupting functions wherever they are, and from
// moving their stacks then, with return addresses that a uretprobe has replaced: such
// programs end with SIGILL.
const noPreemption = "asyncpreemptoff=1"

var calls uint64

// getCount must stay a function of its own for the probe to find it.
//
//go:noinline
func getCount() uint64 {
	calls++
	return calls
}

// What the functions of an order compute: a step takes about a nanosecond.
const (
	stockSteps  = 200_000
	priceSteps  = 2_000
	chargeSteps = 5_000_000
)

// An order's functions compute rather than sleep, call nothing, and take no stack: where one
// waits, the runtime may look at its stack, and finds the return address of a uretprobe there.

//go:noinline
//go:nosplit
func stock(x uint64) uint64 {
	for range stockSteps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//go:noinline
//go:nosplit
func price(x uint64) uint64 {
	for range priceSteps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//go:noinline
//go:nosplit
func charge(x uint64) uint64 {
	for range chargeSteps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

func main() {
	orders := flag.Bool("orders", false, "also call main.stock, main.price and main.charge each time")
	interval := flag.Duration("interval", time.Second, "time between two calls of main.getCount")
	limit := flag.Uint64("calls", 0, "number of calls after which to end; 0 for no end")
	flag.Parse()
	if err := withoutPreemption(); err != nil {
		fmt.Fprintln(os.Stderr, "go-target:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(*interval)
	defer tick.Stop()
	for *limit == 0 || calls < *limit {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Println("main.getCount returned", getCount())
			if *orders {
				fmt.Println("an order returned", charge(price(stock(calls))))
			}
		}
	}
}

// withoutPreemption has this program run without preemption: the runtime reads that at its
// start only.
func withoutPreemption() error {
	settings := os.Getenv("GODEBUG")
	if strings.Contains(settings, noPreemption) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := os.Setenv("GODEBUG", strings.TrimPrefix(settings+","+noPreemption, ",")); err != nil {
		return fmt.Errorf("set GODEBUG: %w", err)
	}
	return fmt.Errorf("start %s again: %w", self, syscall.Exec(self, os.Args, os.Environ())) //nolint:gosec // this very program
}
