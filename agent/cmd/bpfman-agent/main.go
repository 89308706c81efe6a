// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-agent runs on each node: it has the node's bpfman daemon load
// and attach what the user objects ask for, and reports what is there.
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
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bpfman/bpfman-operator/agent/controller"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/pins"
	"github.com/bpfman/bpfman-operator/agent/verify"
	"github.com/bpfman/bpfman-operator/apis/scrape"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/kinds"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// bpffsDir is where the daemon pins, in its and in the host's file system.
const bpffsDir = "/run/bpfman/fs"

const component = "bpfman-agent"

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
	mountBpffs    bool
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
	flag.BoolVar(&o.mountBpffs, "mount-bpffs", false, "Only prepare the node for the daemon and the agent, and exit: mount a BPF file system at "+bpffsDir+" if there is none, mount the container runtime's directory for the agent, and set aside the pins that a daemon of v0.5 left.")
	version.Flag(component)
	flag.Parse()
	log := logger(os.Getenv("GO_LOG"))
	ctrllog.SetLogger(log)
	if err := run(o, log); err != nil {
		log.Error(errors.Join(err, leaveWords(err.Error())), "Stopped")
		os.Exit(1)
	}
}

// terminationLog is what the container's status shows once the container has ended.
const terminationLog = "/dev/termination-log"

// leaveWords leaves words where the operator looks for them: in the status of the container.
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

// gcPercent trades a little CPU, of which the agent needs hardly any, for memory
// on every node.
const gcPercent = 25

// processors is how many processors the agent uses at most. It mostly waits, and Go keeps
// memory for each processor: on a node with 64 of them, 4 MB more than with 2.
const processors = 2

func saveMemory() {
	debug.SetGCPercent(gcPercent)
	goruntime.GOMAXPROCS(min(processors, goruntime.GOMAXPROCS(0)))
}

func run(o options, log logr.Logger) error {
	if o.mountBpffs {
		return errors.Join(prepare(o, log), leaveWords(version.Line(component)))
	}
	if o.nodeName == "" {
		return errors.New("KUBE_NODE_NAME is not set")
	}
	saveMemory()
	if o.profilingAddr == "" {
		goruntime.MemProfileRate = 0 // samples that nobody can ask for, half a megabyte
	} else {
		go serveProfiles(o.profilingAddr)
	}
	o.namespace = cmp.Or(o.namespace, ownNamespace())
	known := &kinds.Kinds{Log: ctrllog.Log}
	mgr, err := newManager(o, known)
	if err != nil {
		return err
	}
	measured, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	process, err := verify.Beside()
	if err != nil {
		return err
	}
	conn, err := daemon.Dial(o.daemonSocket, grpc.WithUnaryInterceptor(measured.Call))
	if err != nil {
		return err
	}
	defer conn.Close()
	reconciler := &controller.Reconciler{
		Client:        mgr.GetClient(),
		Secrets:       mgr.GetAPIReader(),
		Namespace:     o.namespace,
		Verifier:      &verify.Verifier{Verify: process.Verify, Observe: measured.Verified},
		Events:        mgr.GetEventRecorder(component),
		Inventory:     daemon.NewInventory(gobpfman.NewBpfmanClient(conn), o.daemonRoot),
		NodeName:      o.nodeName,
		Drift:         time.Minute,
		Interfaces:    node.Interfaces,
		Containers:    (&node.Runtime{Run: o.runtimeDir}).Containers,
		PodInterfaces: (&node.PodInterfaces{Proc: o.hostProc}).Tell,
		PinsDir:       pins.Dir,
		Metrics:       measured,
		Bpffs:         bpffsDir,
		Kinds:         known,
	}
	if err := register(&metrics.Reports{List: reconciler.Reports}, known); err != nil {
		return err
	}
	onConnect := func(ctx context.Context, f func()) { daemon.OnConnect(ctx, conn, f) }
	if err := guard(mgr, known, func() error { return reconciler.SetupWithManager(mgr, onConnect) }); err != nil {
		return err
	}
	undefined := known.Held
	known.Held = func() error { return cmp.Or(undefined(), reconciler.Inventory.Ready()) }
	if err := mgr.Start(signals.SetupSignalHandler()); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// register adds collectors to the metrics that are served.
func register(collectors ...prometheus.Collector) error {
	for _, collector := range collectors {
		if err := ctrlmetrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// ownNamespace is the one that the agent's pod is in, "" outside of a cluster.
func ownNamespace() string {
	content, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// newManager returns a manager with the agent's caches, probes and metrics.
func newManager(o options, known *kinds.Kinds) (manager.Manager, error) {
	restConfig, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("load the API client's configuration: %w", err)
	}
	// The API server's own priority and fairness does this better.
	restConfig.QPS = -1
	restConfig.UserAgent = v1alpha1.AgentFieldManager

	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	mgr, err := manager.New(restConfig, manager.Options{
		Scheme:         scheme,
		NewCache:       known.NewCache,
		MapperProvider: kinds.Mapper,
		Cache:          controller.CacheOptions(o.nodeName, o.namespace),
		Metrics: server.Options{
			BindAddress:    o.metricsAddr,
			SecureServing:  true,
			FilterProvider: authorized,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	if err := mgr.Add(known.Probes(o.healthAddr)); err != nil {
		return nil, fmt.Errorf("add probes: %w", err)
	}
	return mgr, nil
}

// logger writes JSON lines to standard error. Level is upstream's GO_LOG: info
// unless it is debug or trace.
func logger(level string) logr.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "trace": slog.LevelDebug - 4}
	return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: levels[level]}))
}

func serveProfiles(addr string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctrllog.Log.Error(s.ListenAndServe(), "Failed to serve profiles", "address", addr)
}

// authorized lets those scrape whom the cluster's RBAC allows to.
func authorized(config *rest.Config, httpClient *http.Client) (server.Filter, error) {
	filter, err := scrape.NewFilter(config, httpClient)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return filter.Protect(next, slog.New(logr.ToSlogHandler(log))), nil
	}, nil
}
