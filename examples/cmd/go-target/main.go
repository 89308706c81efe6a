// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command go-target calls main.getCount at an interval, as a target for a uprobe. With
// --orders, it also calls main.stock, main.price, and main.charge each time. One of them is
// slow. Its symbols must not be stripped.
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

// noPreemption prevents Go's runtime from interrupting functions at any point and then moving
// their stacks. A uretprobe replaces return addresses on the stack, so such programs would
// end with SIGILL.
const noPreemption = "asyncpreemptoff=1"

var calls uint64

// getCount must not be inlined, so that the probe finds it.
//
//go:noinline
func getCount() uint64 {
	calls++
	return calls
}

// The number of steps in the functions of an order. A step takes about a nanosecond.
const (
	stockSteps  = 200_000
	priceSteps  = 2_000
	chargeSteps = 5_000_000
)

// The functions of an order compute instead of sleeping, call nothing, and use no stack. When
// a function waits, the runtime can inspect its stack, and find the return address of a
// uretprobe there.

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
	orders := flag.Bool("orders", false, "Also call main.stock, main.price, and main.charge each time.")
	interval := flag.Duration("interval", time.Second, "Time between two calls of main.getCount.")
	limit := flag.Uint64("calls", 0, "Number of calls after which to exit; 0 to run forever.")
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

// withoutPreemption restarts this program without preemption, because the runtime reads the
// setting only when it starts.
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
	return fmt.Errorf("start %s again: %w", self, syscall.Exec(self, os.Args, os.Environ())) //nolint:gosec // it is this same program
}
