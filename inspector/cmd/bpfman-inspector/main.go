// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-inspector runs on each node. It finds all eBPF programs in the node's
// kernel, where they are attached, and who holds them, and reports them in the node's
// BpfNode. It doesn't change any of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
	"github.com/bpfman/bpfman-operator/inspector/inspect"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/metrics"
	"github.com/bpfman/bpfman-operator/inspector/objects"
	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/logs"
	"github.com/bpfman/bpfman-operator/internal/restclient"
	"github.com/bpfman/bpfman-operator/internal/scrape"
)

const component = "bpfman-inspector"

// command answers a question about the current state. A client runs it through exec in
// the inspector's container.
type command func(ctx context.Context, arguments []string, in io.Reader, out io.Writer) error

// commands are the commands, by the inspector's first argument. Without a command, the
// inspector reports.
var commands = map[string]command{
	live.CommandDump:  dump,
	live.CommandTail:  tail,
	live.CommandTop:   top,
	live.CommandTrace: trace,
	live.CommandLog:   log,
}

type options struct {
	nodeName       string
	daemonSocket   string
	hostProc       string
	hostRun        string
	metricsAddress string
	statistics     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(os.Args) > 1 {
		if answer, ok := commands[os.Args[1]]; ok {
			if err := answer(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(exitCode(err))
			}
			return
		}
	}
	o := options{nodeName: os.Getenv("KUBE_NODE_NAME")}
	flag.StringVar(&o.daemonSocket, "daemon-socket", "/run/bpfman-sock/bpfman.sock", "Unix socket of the bpfman daemon.")
	flag.StringVar(&o.hostProc, "host-proc", "/host/proc", "Path of the host's /proc.")
	flag.StringVar(&o.hostRun, "host-run", "/host/run", "Path of the host's /run, for the container runtime's socket.")
	flag.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:8172", "Address to serve /metrics at, and /healthz and /readyz without authentication, over TLS; 0 turns it off.")
	flag.BoolVar(&o.statistics, "statistics", false, "Have the kernel count the runs of each program and measure their time, which makes each run slightly slower.")
	version.Flag(component)
	flag.Parse()
	log := logs.Setup(os.Stderr, os.Getenv(logs.Variable))
	if err := run(ctx, o, log); err != nil {
		log.Error("Stopped", "error", err)
		os.Exit(1)
	}
	log.Info("Stopped")
}

// exitCode returns the exit code of a command that failed.
func exitCode(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return live.ExitAbsent
	}
	return 1
}

// gcPercent makes the garbage collector run more often. The inspector uses little CPU,
// and this saves memory on every node.
const gcPercent = 25

func run(ctx context.Context, o options, log *slog.Logger) error {
	debug.SetGCPercent(gcPercent)
	runtime.MemProfileRate = 0 // nobody reads the samples, and they take half a megabyte
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %q", flag.Args())
	}
	if o.nodeName == "" {
		return errors.New("KUBE_NODE_NAME is not set")
	}
	measured := metrics.Kernel{MapMemory: kernel.MapMemory}
	if o.statistics {
		counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		if err != nil {
			log.Error("Failed to turn on the kernel's statistics; runs of programs aren't counted", "error", err)
		} else {
			defer counting.Close()
			measured.Runs = kernel.Runs
		}
	}
	config, err := restclient.InCluster(component)
	if err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	collector := metrics.New(measured)
	registry.MustRegister(collector, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cluster, err := objects.New(config, o.nodeName)
	if err != nil {
		return err
	}
	detector := &conflict.Detector{Cluster: cluster, Log: log, Now: time.Now}
	inspector, err := inspect.New(inspect.Options{
		NodeName: o.nodeName, DaemonSocket: o.daemonSocket, HostProc: o.hostProc, HostRun: o.hostRun,
		API: config, Log: log, Conflicts: detector.Conflicts, OnSnapshot: collector.Update,
		Runs: measured.Runs,
	})
	if err != nil {
		return err
	}
	defer inspector.Close()
	tasks, ctx := errgroup.WithContext(ctx)
	if o.metricsAddress != "0" {
		filter, err := scrape.NewFilter(config)
		if err != nil {
			return err
		}
		certified, err := scrape.TLS(component)
		if err != nil {
			return err
		}
		handler := scrape.Endpoint(filter.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), log), inspector.Ready)
		tasks.Go(func() error { return scrape.Serve(ctx, o.metricsAddress, handler, certified, log) })
	}
	tasks.Go(func() error { return inspector.Run(ctx) })
	return tasks.Wait()
}
