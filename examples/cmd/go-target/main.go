// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command go-target calls main.getCount at an interval: something for a uprobe to be
// attached to. Its symbols must not be stripped.
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

func main() {
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
