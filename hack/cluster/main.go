// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command cluster runs a Kubernetes cluster on this machine, with Kubernetes' own
// components, containerd, and runc, without a container engine. It needs root. After it
// ends, nothing is left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
	"github.com/bpfman/bpfman-operator/hack/cluster/registry"
)

const usage = `usage: cluster [flags] command

commands for the cluster:
  up           start the cluster unless it runs, with at least --nodes nodes, and load the images
  down         stop the cluster, and remove everything of it
  status       print what runs; fail if something doesn't
  load-images  load the images that have changed
  add-node     start another node, or the node that --node specifies
  exec-net     run a command of this machine in the cluster's network: cluster exec-net [command…]

commands for the node that --node specifies, by default the first one:
  exec         run a command inside the node: cluster exec [command…]
  halt         stop the node as if it lost power; its disk stays
  boot         start the node again
  reboot       halt and boot the node
  remove-node  stop the node, and remove everything of it, including its Node object; not for the first node
  tap          let a virtual machine be the node: print the interface of the cluster's network to connect it to
  signal       send a signal to components: cluster signal KILL|STOP|CONT|… component…
  stop, start  stop components and keep them stopped, or start them again: cluster stop component…

flags:
`

// options are the options of the command line.
type options struct {
	instance         int
	stateDir         string
	kubernetes       string
	containerd       string
	kubeconfig       string
	timeout          time.Duration
	atLeast          int
	node             string
	controlPlaneOnly bool
	join             string
	uplink           string
	sources          image.Sources
}

func main() {
	// The first stage of a node's init changes namespaces of its thread.
	runtime.LockOSThread()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	command := ""
	if len(args) > 0 && (args[0] == node.StageUnshare || args[0] == node.StageInit) {
		command, args = args[0], args[1:]
	}
	var o options
	flags := o.flags()
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := makeAbsolute(&o.stateDir, &o.join, &o.kubernetes, &o.containerd, &o.kubeconfig, &o.sources.Bin, &o.sources.Daemon, &o.sources.Other); err != nil {
		return err
	}
	if o.instance < 0 || o.instance > math.MaxUint8 {
		return fmt.Errorf("there is no instance %d", o.instance)
	}
	number, err := numberOf(o.node)
	if err != nil {
		return err
	}
	c := cluster{options: o, number: number}
	c.sources.RegistryCA = c.settings(number).RegistryCA()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch command {
	case node.StageUnshare:
		return node.Unshare(c.initProgram(), args)
	case node.StageInit:
		return node.Init(context.Background(), c.settings(number), c.serveRegistry)
	}
	if os.Geteuid() != 0 {
		return errors.New("root access is required, to create namespaces and mounts")
	}
	return c.run(ctx, flags)
}

// run runs the command on the command line.
func (c cluster) run(ctx context.Context, flags *flag.FlagSet) error {
	name, args := flags.Arg(0), flags.Args()
	if len(args) > 0 {
		args = args[1:]
	}
	locked := map[string]func(context.Context) error{
		"up": c.up, "down": c.down, "load-images": c.loadImages, "add-node": c.addNode, "remove-node": c.removeNode,
		"halt": c.halt, "boot": c.boot, "reboot": c.reboot, "tap": c.tap,
	}
	if run, ok := locked[name]; ok {
		return c.locked(ctx, run)
	}
	switch name {
	case "status":
		return c.status(ctx)
	case "exec":
		return c.exec(args)
	case "exec-net":
		return c.execNet(args)
	case "signal", "stop", "start":
		return c.control(ctx, name, args)
	default:
		flags.Usage()
		return fmt.Errorf("no such command: %q", name)
	}
}

// numberOf returns the number of the node with the given number or name.
func numberOf(nodeName string) (int, error) {
	for number := 1; number <= component.MaxNodes; number++ {
		if nodeName == strconv.Itoa(number) || nodeName == component.Default(0, "", "", number).Node {
			return number, nil
		}
	}
	return 0, fmt.Errorf("there is no node %q: a cluster has nodes 1 to %d", nodeName, component.MaxNodes)
}

// flags returns the flags that set the options.
func (o *options) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.IntVar(&o.instance, "instance", 0, "which cluster of this machine, 0 to 255; each needs a state directory")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/bpfman-cluster", "everything that the cluster keeps on disk")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "the multi-call binary of hack/kubernetes")
	flags.StringVar(&o.containerd, "containerd", "", "the directory of containerd and its shim, instead of this machine's")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "bin/kubeconfig", "the administrator's kubeconfig, written by up")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long up may take")
	flags.IntVar(&o.atLeast, "nodes", 1, "how many nodes up starts at least")
	flags.StringVar(&o.node, "node", "1", "the node to command, by its number or its name")
	flags.BoolVar(&o.controlPlaneOnly, "control-plane-only", false, "the first node runs no pods")
	flags.StringVar(&o.join, "join", "", "this machine is the node of --node of the cluster of that state directory, and of nothing else")
	flags.StringVar(&o.uplink, "uplink", "", "with --join, the machine's interface to the cluster's network, which becomes the node's")
	flags.StringVar(&o.sources.Bin, "bin", "bin", "the directory of the binaries that the images are made of")
	flags.StringVar(&o.sources.Daemon, "daemon", "", "the bpfman daemon, bpfman-rpc, or bpfman if it is the one in Go")
	flags.StringVar(&o.sources.Other, "other-daemon", "", "another daemon, for the image "+image.OtherDaemon)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// makeAbsolute converts relative paths to absolute paths.
func makeAbsolute(files ...*string) error {
	for _, file := range files {
		if *file == "" {
			continue
		}
		absolute, err := filepath.Abs(*file)
		if err != nil {
			return fmt.Errorf("find %s: %w", *file, err)
		}
		*file = absolute
	}
	return nil
}

// initProgram returns the path of the copy of this program that the nodes run. The
// original can be rebuilt in the meantime.
func (c cluster) initProgram() string { return filepath.Join(c.stateDir, "cluster") }

// serveRegistry serves the cluster's registry, on its own port and on the HTTPS port.
func (c cluster) serveRegistry(ctx context.Context) error {
	s := c.settings(1)
	return registry.Serve(ctx, registry.Options{
		Addresses: []string{":" + component.RegistryPort, ":443"},
		Blobs:     s.Dir("registry"),
		Cert:      s.Dir("pki", "registry.crt"),
		Key:       s.Dir("pki", "registry.key"),
	})
}
