// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command cluster runs a one-node Kubernetes cluster on this machine, of
// Kubernetes' own components, containerd and runc, without a container engine.
// It needs root, and leaves nothing behind.
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
	"slices"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
	"github.com/bpfman/bpfman-operator/hack/cluster/registry"
)

const usage = `usage: cluster [flags] command

  up           start the cluster, or find it running, and load the images
  down         end it and remove everything of it
  status       say what runs; fails where the cluster doesn't
  load-images  load the images that have changed
  exec         run a command inside the node: cluster exec [command…]
  exec-net     run a command of this machine in the node's network: cluster exec-net [command…]

flags:
`

// options are the command line's.
type options struct {
	instance   int
	stateDir   string
	kubernetes string
	kubeconfig string
	timeout    time.Duration
	part       string
	join       string
	uplink     string
	sources    image.Sources
}

func main() {
	// The node's first stage changes namespaces of its thread.
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
	if err := makeAbsolute(&o.stateDir, &o.join, &o.kubernetes, &o.kubeconfig, &o.sources.Bin, &o.sources.Daemon); err != nil {
		return err
	}
	if o.instance < 0 || o.instance > math.MaxUint8 {
		return fmt.Errorf("there is no instance %d", o.instance)
	}
	part := component.Part(o.part)
	if !slices.Contains([]component.Part{component.Whole, component.ControlPlane, component.Node}, part) {
		return fmt.Errorf("a cluster has no part %q", part)
	}
	settings := component.Default(uint8(o.instance), o.stateDir, o.kubernetes).Split(part, o.uplink)
	o.sources.RegistryCA = settings.RegistryCA()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch command {
	case node.StageUnshare:
		return node.Unshare(initProgram(settings), args)
	case node.StageInit:
		return node.Init(context.Background(), settings, registryOf(settings))
	}
	if os.Geteuid() != 0 {
		return errors.New("this takes root: it makes namespaces and mounts")
	}
	c := cluster{options: o, settings: settings}
	switch flags.Arg(0) {
	case "up":
		return c.locked(ctx, c.up)
	case "down":
		return c.locked(ctx, c.down)
	case "status":
		return c.status(ctx)
	case "load-images":
		return c.locked(ctx, c.loadImages)
	case "exec":
		return c.exec("--all", flags.Args()[1:])
	case "exec-net":
		return c.exec("--net", flags.Args()[1:])
	default:
		flags.Usage()
		return fmt.Errorf("no such command: %q", flags.Arg(0))
	}
}

// flags are what sets the options.
func (o *options) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.IntVar(&o.instance, "instance", 0, "which cluster of this machine, 0 to 255; each needs a state directory")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/bpfman-cluster", "everything that the cluster keeps on disk")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "the multi-call binary of hack/kubernetes")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "bin/kubeconfig", "the administrator's kubeconfig, written by up")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long up may take")
	flags.StringVar(&o.part, "part", string(component.Whole), "what runs here: all, control-plane, or node, a virtual machine of its own")
	flags.StringVar(&o.join, "join", "", "the state directory of the node's control plane")
	flags.StringVar(&o.uplink, "uplink", "", "the machine's interface to the control plane, which becomes the node's")
	flags.StringVar(&o.sources.Bin, "bin", "bin", "the directory of the binaries that the images are made of")
	flags.StringVar(&o.sources.Daemon, "daemon", "", "the bpfman daemon, bpfman-rpc")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// makeAbsolute makes the paths that are given independent of the working directory.
func makeAbsolute(files ...*string) error {
	for _, file := range files {
		if *file == "" {
			continue
		}
		absolute, err := filepath.Abs(*file)
		if err != nil {
			return fmt.Errorf("finding %s: %w", *file, err)
		}
		*file = absolute
	}
	return nil
}

// initProgram is this program's copy that the node runs: the original may be
// rebuilt meanwhile.
func initProgram(s component.Settings) string { return s.Dir("cluster") }

// registryOf serves the cluster's registry: on its own port to everyone, on
// that of https on loopback only, as pods of the host's network may want it. A
// node on another machine has no other than that.
func registryOf(s component.Settings) func(context.Context) error {
	https := "127.0.0.1:443"
	if s.Part == component.ControlPlane {
		https = ":443"
	}
	return func(ctx context.Context) error {
		return registry.Serve(ctx, registry.Options{
			Addresses: []string{":" + component.RegistryPort, https},
			Blobs:     s.Dir("registry"),
			Cert:      s.Dir("pki", "registry.crt"),
			Key:       s.Dir("pki", "registry.key"),
		})
	}
}
