// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command scale measures the cost of a cluster with many nodes: the operator, the API server, and the agents. It
// has its own etcd and kube-apiserver. docs/benchmarks.md explains the figures.
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

	"github.com/bpfman/bpfman-operator/internal/figures"
)

type options struct {
	// nodes is the number of nodes. programs is the number of objects, each of which selects all nodes.
	nodes, programs int
	// kinds is the number of kinds of the objects. An agent watches each kind that has objects.
	kinds int
	// agents is the number of nodes with a real agent.
	agents int
	// connections is the number of connected agents for which the cost of writes is compared with the cost with
	// agents.
	connections int
	// through is the number of reports that are written through the API server, rounded to whole nodes. The others
	// are written to etcd in the API server's storage format.
	through int
	// repeats is the number of measured rounds of writes.
	repeats int
	// agentOnly measures only the memory of an agent.
	agentOnly bool
	// rolloutOnly measures only a rollout in steps, and the confirmations of all nodes.
	rolloutOnly bool

	operator, agent, kwok, stages string
	// reportsTest is the path of the test binary of operator/reports.
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
	flags.BoolVar(&o.rolloutOnly, "rollout-only", false, "Measure only a rollout in ten steps, and the confirmations of all nodes.")
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
	// After a failure, the measurements before it are still useful.
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
