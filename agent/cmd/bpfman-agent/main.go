// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-agent runs on each node. It loads and attaches the programs of the user
// objects with the node's bpfman daemon, and reports their state.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bpfman/bpfman-operator/agent"
	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/pins"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/logs"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/restclient"
	"github.com/bpfman/bpfman-operator/internal/scrape"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// bpffsDir is the mount point of the daemon's BPF file system, in the daemon's container and on
// the host.
const bpffsDir = "/run/bpfman/fs"

type options struct {
	nodeName      string
	daemonSocket  string
	daemonRoot    string
	runtimeDir    string
	hostRun       string
	hostProc      string
	healthAddr    string
	metricsAddr   string
	profilingAddr string
	namespace     string
	kubeconfig    string
	bytecodeDir   string
	bytecodeSize  int64
	confirmWithin time.Duration
	requirePolicy bool
	mountBpffs    bool
	helperDir     string
	startsSocket  string

	uprobeNamespaces string

	reservedPriorities int
	enforcePriorities  bool
}

func main() {
	o := options{nodeName: os.Getenv("KUBE_NODE_NAME")}
	flag.StringVar(&o.daemonSocket, "daemon-socket", "/run/bpfman-sock/bpfman.sock", "Unix socket of the bpfman daemon.")
	flag.StringVar(&o.daemonRoot, "daemon-root", "", "Path of the daemon's root file system, if it differs from the agent's.")
	flag.StringVar(&o.runtimeDir, "runtime-dir", "/run/bpfman/cri", "Path of the container runtime's directory from the host's /run. With --mount-bpffs, the path to mount it at.")
	flag.StringVar(&o.hostRun, "host-run", "/host/run", "Path of the host's /run, for --mount-bpffs.")
	flag.StringVar(&o.hostProc, "host-proc", "/host/proc", "Path of the host's /proc, for the names of interfaces in pods' network namespaces, and for --mount-bpffs.")
	flag.StringVar(&o.healthAddr, "health-probe-bind-address", ":8175", "Address to serve /healthz and /readyz at.")
	flag.StringVar(&o.metricsAddr, "metrics-bind-address", "127.0.0.1:8174", "Address to serve /metrics at, over TLS; 0 turns it off.")
	flag.StringVar(&o.profilingAddr, "profiling-bind-address", "", "Address to serve pprof at, without authentication; empty turns it off.")
	flag.StringVar(&o.namespace, "namespace", "", "Namespace of the Secrets and ConfigMaps that policies refer to, and of the operator's hints (default: the agent's own).")
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "Path of a kubeconfig file, outside of a cluster.")
	flag.StringVar(&o.bytecodeDir, "bytecode-dir", bytecode.Dir, "Directory for the objects of bytecode images, at the same path as in the daemon's container.")
	flag.Int64Var(&o.bytecodeSize, "bytecode-dir-size", 256<<20, "Maximum size of these objects in bytes.")
	flag.DurationVar(&o.confirmWithin, "confirm-timeout", 30*time.Second, "How long to wait for the API server after a change of the node's network programs, before the change is rolled back; 0 means never.")
	flag.BoolVar(&o.requirePolicy, "require-policy", false, "Refuse images for which no BytecodePolicy in mode enforce requires a signature.")
	flag.StringVar(&o.uprobeNamespaces, "uprobe-namespaces", "", "Namespaces, separated by commas, whose uprobes are attached although they run for every process with the same file; * for all.")
	flag.IntVar(&o.reservedPriorities, "reserved-priorities", 100, "Number of priorities, from 0, that are reserved for cluster-scoped programs.")
	flag.BoolVar(&o.enforcePriorities, "enforce-priorities", false, "Detach namespaced programs that have a reserved priority.")
	flag.BoolVar(&o.mountBpffs, "mount-bpffs", false, "Only prepare the node for the daemon and the agent, and exit: mount a BPF file system at "+bpffsDir+" if there is none, mount the container runtime's directory for the agent, and set aside the pins that a daemon of v0.5 left.")
	flag.StringVar(&o.helperDir, "helper-dir", "", "Directory to copy the commands to that run in the daemon's container, with --mount-bpffs: bpfman-ns, its helper for uprobes in containers, and bpfman-probe.")
	flag.StringVar(&o.startsSocket, "nri-socket", "", "Socket of the container runtime's NRI, to attach programs before containers start; empty attaches them after the start.")
	version.Flag(agent.Component)
	flag.Parse()
	log := logr.FromSlogHandler(logs.Setup(os.Stderr, os.Getenv(logs.Variable)).Handler())
	if err := run(o, log); err != nil {
		log.Error(errors.Join(err, leaveWords(err.Error())), "Stopped")
		os.Exit(1)
	}
}

// terminationLog is the container's default terminationMessagePath.
const terminationLog = "/dev/termination-log"

// leaveWords writes the container's termination message, which the operator reads from the
// container's status.
func leaveWords(words string) error {
	file, err := os.OpenFile(terminationLog, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not in a container
	}
	if err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	_, err = file.WriteString(words)
	return errors.Join(err, file.Close())
}

// gcPercent is lower than Go's default, which saves memory on each node and takes a bit more
// CPU. The agent needs little CPU.
const gcPercent = 25

func run(o options, log logr.Logger) error {
	if o.mountBpffs {
		return errors.Join(prepare(o, log), leaveWords(version.Line(agent.Component)))
	}
	if o.nodeName == "" {
		return errors.New("KUBE_NODE_NAME is not set")
	}
	debug.SetGCPercent(gcPercent)
	if o.profilingAddr == "" {
		runtime.MemProfileRate = 0 // can't be read without the server, and takes half a megabyte
	} else {
		go serveProfiles(o.profilingAddr, log)
	}
	o.namespace = cmp.Or(o.namespace, ownNamespace())
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	measured := metrics.New(registry)
	conn, err := bpfman.Dial(o.daemonSocket, grpc.WithUnaryInterceptor(measured.Call))
	if err != nil {
		return err
	}
	defer conn.Close()
	host, err := thisNode(o, conn)
	if err != nil {
		return err
	}
	running, err := agent.New(config, agent.Options{
		NodeName: o.nodeName, Namespace: o.namespace, BytecodeDir: o.bytecodeDir, BytecodeSize: o.bytecodeSize, Confirm: o.confirmWithin,
		RequirePolicy:    o.requirePolicy,
		UprobeNamespaces: strings.FieldsFunc(o.uprobeNamespaces, func(r rune) bool { return r == ',' }),
		Reserved:         program.Reserved{Below: o.reservedPriorities, Enforced: o.enforcePriorities},
		Metrics:          measured,
	}, host, log)
	if err != nil {
		return err
	}
	register(registry, o, running)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal stops the agent immediately
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return running.Run(ctx) })
	tasks.Go(func() error {
		return scrape.Serve(ctx, o.healthAddr, running.Cluster.Kinds.Probes(), nil, slog.New(logr.ToSlogHandler(log)))
	})
	if o.metricsAddr != "0" {
		tasks.Go(func() error { return serveMetrics(ctx, o.metricsAddr, registry, config, log) })
	}
	return tasks.Wait()
}

// thisNode returns the node on which this process runs.
func thisNode(o options, conn *grpc.ClientConn) (agent.Node, error) {
	process, err := bytecode.NewProcess()
	if err != nil {
		return agent.Node{}, err
	}
	kernel, err := reader.Kernel()
	containers := node.NewRuntime(node.DialBelow(o.runtimeDir))
	host := agent.Node{
		Daemon:          daemon.Explained(gobpfman.NewBpfmanClient(conn), filepath.Dir(o.daemonSocket)),
		OnConnect:       func(ctx context.Context, f func()) { daemon.OnConnect(ctx, conn, f) },
		DaemonRoot:      o.daemonRoot,
		Bpffs:           bpffsDir,
		Proc:            "/proc",
		Kernel:          kernel,
		Interfaces:      node.Interfaces,
		WatchInterfaces: node.WatchInterfaces,
		Containers:      containers.Containers,
		WatchContainers: containers.Watch,
		PodInterfaces:   node.NewPodInterfaces(o.hostProc).Set,
		CheckProcess:    node.CheckProcesses(o.hostProc),
		PinsDir:         pins.Dir,
		KernelTypes:     "/sys/kernel/btf",
		Read:            process.Read,
	}
	if o.startsSocket != "" {
		host.WatchStarts = node.WatchStarts(o.startsSocket)
	}
	return host, err
}

func register(registry *prometheus.Registry, o options, running *agent.Agent) {
	metrics.Requests(registry)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&metrics.Reports{List: running.Reports}, &metrics.Daemon{Name: func() string { return string(running.Inventory.Daemon()) }}, running.Cluster.Kinds)
	metrics.Waiting(registry, running.Changes.Unconfirmed, running.Unwritten)
	metrics.Disk(registry, running.Bytecode.Store.Size, func() int64 { return daemon.DatabaseSize(o.daemonRoot) })
}

// clientConfig returns the configuration of the API client from a kubeconfig file, or from the
// agent's pod if kubeconfig is "".
func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return restclient.InCluster(v1alpha1.AgentFieldManager)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load the API client's configuration: %w", err)
	}
	config.UserAgent = v1alpha1.AgentFieldManager
	return config, nil
}

// ownNamespace returns the namespace of the agent's pod, or "" outside of a cluster.
func ownNamespace() string {
	content, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func serveProfiles(addr string, log logr.Logger) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	err := scrape.Serve(context.Background(), addr, mux, nil, slog.New(logr.ToSlogHandler(log)))
	log.Error(err, "Failed to serve profiles", "address", addr)
}
