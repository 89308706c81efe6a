// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

// addNode starts another node: the one that the command names, or the one with the lowest
// free number.
func (c cluster) addNode(ctx context.Context) error {
	if !node.Load(c.settings(1).StateDir).Alive() {
		return errors.New("no cluster is running: to start one, run make cluster-up")
	}
	number := c.number
	for number <= component.MaxNodes && node.Load(c.settings(number).StateDir) != nil {
		number++
	}
	if number > component.MaxNodes {
		return fmt.Errorf("a cluster has %d nodes at most", component.MaxNodes)
	}
	s := c.settings(number)
	// It can be incomplete.
	if err := os.RemoveAll(s.StateDir); err != nil {
		return fmt.Errorf("remove what is left of node %s: %w", s.Node, err)
	}
	if err := c.startAndAwait(ctx, s); err != nil {
		return err
	}
	fmt.Println(s.Node)
	return nil
}

func (c cluster) startAndAwait(ctx context.Context, s component.Settings) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the node %s wasn't up after %v", s.Node, c.timeout))
	defer cancel()
	if err := c.start([]int{s.Number}); err != nil {
		return err
	}
	return c.await(ctx, []component.Settings{s})
}

// removeNode stops the node, and removes everything that belongs to it, including the
// Node object. A cloud does the same when a machine is deleted.
func (c cluster) removeNode(ctx context.Context) error {
	s, err := c.commanded()
	if err != nil {
		return err
	}
	if s.HasControlPlane() {
		return errors.New("the first node has the control plane: to stop the whole cluster, run make cluster-down")
	}
	if err := c.halt(ctx); err != nil {
		return err
	}
	api, err := component.NewAPI(s)
	if err != nil {
		return err
	}
	if err := api.DeleteNode(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(s.StateDir); err != nil {
		return fmt.Errorf("remove the state of node %s: %w", s.Node, err)
	}
	return nil
}

// halt stops the node as in a power failure.
func (c cluster) halt(ctx context.Context) error {
	s, err := c.commanded()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("the node %s wasn't down after %v", s.Node, stopTimeout))
	defer cancel()
	return step("node "+s.Node+" is down", func() error { return node.Stop(ctx, s) })
}

// boot starts the node again.
func (c cluster) boot(ctx context.Context) error {
	s, err := c.commanded()
	if err != nil {
		return err
	}
	return c.startAndAwait(ctx, s)
}

func (c cluster) reboot(ctx context.Context) error {
	if err := c.halt(ctx); err != nil {
		return err
	}
	return c.boot(ctx)
}

// tap prints the interface of the cluster's network for the virtual machine that is the
// node.
func (c cluster) tap(context.Context) error {
	s := c.settings(c.number)
	if node.Load(s.StateDir) != nil {
		return fmt.Errorf("the node %s is this machine's", s.Node)
	}
	if err := node.ConnectTap(s); err != nil {
		return err
	}
	fmt.Println(s.Port)
	return nil
}

// control sends signals to components of the node, or stops or starts them.
func (c cluster) control(ctx context.Context, command string, args []string) error {
	s, err := c.commanded()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("no %s after %v", command, stopTimeout))
	defer cancel()
	run := func(name string) error { return node.StopComponent(ctx, s, name) }
	switch command {
	case "start":
		run = func(name string) error { return node.StartComponent(ctx, s, name) }
	case "signal":
		if len(args) == 0 {
			return errors.New("signal takes the signal's name and components")
		}
		signal := unix.SignalNum("SIG" + strings.TrimPrefix(args[0], "SIG"))
		if signal == 0 {
			return fmt.Errorf("there is no signal %q", args[0])
		}
		run = func(name string) error { return node.Signal(s, name, signal) }
		args = args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("%s takes components: %s", command, strings.Join(component.Names(s), ", "))
	}
	for _, name := range args {
		if !slices.Contains(component.Names(s), name) {
			return fmt.Errorf("node %s has no %q, but %s", s.Node, name, strings.Join(component.Names(s), ", "))
		}
		if err := run(name); err != nil {
			return err
		}
	}
	return nil
}
