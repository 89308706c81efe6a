// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command go-target calls main.getCount at an interval: something for a uprobe to be
// attached to. Its symbols must not be stripped.
package main

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"syscall"
	"time"
)

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
