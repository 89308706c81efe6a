// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command scale measures what a cluster of many nodes costs: the operator, the API server and the agents. It has an etcd
// and a kube-apiserver of its own. docs/benchmarks.md says what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bpfman/bpfman-operator/tests/figures"
)

type options struct {
	// nodes is how many the cluster has, programs how many objects it has, each for all nodes.
	nodes, programs int
	// kinds is how many kinds the objects are of: an agent watches each that has any.
	kinds int
	// agents is how many nodes have a real agent.
	agents int
	// connections is how many agents are connected where the cost of writes is compared with that at agents.
	connections int
	// through is how many reports are written through the API server, by whole nodes; the others go into etcd as the API
	// server stores them.
	through int
	// repeats is how many rounds of writes are measured.
	repeats int
	// agentOnly measures the memory of an agent, and nothing else.
	agentOnly bool

	operator, agent, kwok, stages string
	// reportsTest is the test binary of operator/reports.
	reportsTest string
	out         string
	keep        bool
}

func main() {
	log.SetLogger(logr.Discard())
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	var o options
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	flags.IntVar(&o.nodes, "nodes", 500, "How many nodes the cluster has.")
	flags.IntVar(&o.programs, "programs", 20, "How many objects there are, each a program on every node.")
	flags.IntVar(&o.kinds, "kinds", allKinds, "How many kinds the objects are of, at most 3.")
	flags.IntVar(&o.agents, "agents", 100, "How many nodes have a real agent, at most.")
	flags.IntVar(&o.connections, "connections", 1000, "How many agents are connected where costs are compared with those at 100.")
	flags.IntVar(&o.through, "through", 10_000, "How many reports are written through the API server, by whole nodes; the others go into etcd as it stores them.")
	flags.IntVar(&o.repeats, "rounds", 5, "How often the cost of writes is measured.")
	flags.StringVar(&o.operator, "operator", "bin/bpfman-operator", "The operator's executable.")
	flags.StringVar(&o.agent, "agent", "bin/bpfman-agent", "The agent's executable.")
	flags.StringVar(&o.kwok, "kwok", "bin/kwok", "kwok's executable.")
	flags.StringVar(&o.stages, "kwok-stages", "bin/kwok-stages", "The directory of the stages that kwok's module has.")
	flags.StringVar(&o.reportsTest, "reports-test", "bin/reports.test", "The executable of operator/reports' tests, which reads all reports in several ways.")
	flags.StringVar(&o.out, "out", "bench-scale.json", "File for the figures.")
	flags.BoolVar(&o.keep, "keep", false, "Keep the logs.")
	flags.BoolVar(&o.agentOnly, "agent-only", false, "Measure only the memory of an agent, in a cluster of one node.")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse arguments: %w", err)
	}
	o.agents = min(o.agents, o.nodes-1-sampleNodes)
	if o.agents < 1 || o.programs < 1 || o.kinds < 1 || o.kinds > allKinds {
		return errors.New("too few nodes or programs, or another number of kinds than 1 to 3")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "bpfman-scale-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if o.keep {
			fmt.Println("logs are in", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	b := &bench{options: o, started: time.Now(), dir: dir, figures: map[string]any{}}
	// What was measured before a failure is worth keeping.
	measureErr := b.measure(ctx)
	if measureErr != nil && ctx.Err() != nil {
		measureErr = errors.Join(context.Cause(ctx), measureErr)
	}
	b.figures["complete"] = measureErr == nil
	b.print(os.Stdout)
	if err := figures.Write(o.out, b.figures); err != nil {
		return errors.Join(measureErr, err)
	}
	path, _ := filepath.Abs(o.out)
	fmt.Println("\nwritten to", path)
	return measureErr
}
