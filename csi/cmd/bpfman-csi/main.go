// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-csi is the CSI node plugin csi.bpfman.io. It mounts the maps of eBPF programs that bpfman loaded
// into pods.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/driver"
	"github.com/bpfman/bpfman-operator/csi/internal/socket"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/metrics"
	"github.com/bpfman/bpfman-operator/csi/program"
	"github.com/bpfman/bpfman-operator/csi/registration"
	"github.com/bpfman/bpfman-operator/internal/logs"
	"github.com/bpfman/bpfman-operator/internal/restclient"
	"github.com/bpfman/bpfman-operator/internal/scrape"
)

// Values of --cluster-access.
const (
	accessAll  = "all"
	accessRead = "read"
	accessRBAC = "rbac"
)

type options struct {
	endpoint, identityEndpoint                    string
	daemonSocket, mapsRoot, kubeletRoot, nodeName string
	registrationDir, registrationPath             string
	clusterAccess                                 string
	selinuxContext                                string
	metricsAddress                                string
	probe                                         bool
}

func parseFlags() (options, error) {
	var o options
	flag.StringVar(&o.endpoint, "endpoint", "unix:///csi/csi.sock", "Socket to serve CSI at.")
	flag.StringVar(&o.identityEndpoint, "identity-endpoint", "", "Socket to serve only CSI's identity service at, for node-driver-registrar, which must not mount volumes. By default, none.")
	flag.StringVar(&o.daemonSocket, "daemon-socket", "/run/bpfman-sock/bpfman.sock", "Socket of the bpfman daemon.")
	flag.StringVar(&o.mapsRoot, "maps-root", "/run/bpfman/fs/maps", "Directory below which the daemon pins maps.")
	flag.StringVar(&o.kubeletRoot, "kubelet-root", "/var/lib/kubelet", "Root directory of the kubelet.")
	flag.StringVar(&o.nodeName, "node-name", os.Getenv("KUBE_NODE_NAME"), "Name of this node (default $KUBE_NODE_NAME).")
	flag.StringVar(&o.registrationDir, "registration-dir", "/registration",
		"Directory of the kubelet's plugin registration. If it doesn't exist, the plugin can't restore a lost registration.")
	flag.StringVar(&o.registrationPath, "registration-path", "",
		"Path of the CSI socket as the kubelet sees it (default <kubelet-root>/plugins/csi-bpfman/csi.sock).")
	flag.StringVar(&o.clusterAccess, "cluster-access", accessAll,
		"Who can mount the maps of cluster-scoped programs. all: every pod. rbac: pods whose ServiceAccount has the verb use on the program. read: as rbac, and every pod read-only.")
	flag.StringVar(&o.selinuxContext, "selinux-context", "",
		"SELinux context of volumes, on nodes with SELinux (default: that of every bpffs, which containers can't use).")
	flag.StringVar(&o.metricsAddress, "metrics-address", "127.0.0.1:8173", "Address to serve /metrics at, to clients that RBAC allows, and the probes /healthz and /readyz, over TLS; 0 turns it off.")
	flag.BoolVar(&o.probe, "probe", false, "Only check whether the plugin that serves --endpoint is ready, and exit.")
	version.Flag("bpfman-csi")
	flag.Parse()

	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected arguments: %q", flag.Args())
	}
	if o.nodeName == "" && !o.probe {
		return o, errors.New("--node-name or $KUBE_NODE_NAME is required")
	}
	var err error
	if o.endpoint, err = socketPath("endpoint", o.endpoint); err != nil {
		return o, err
	}
	if o.identityEndpoint != "" {
		if o.identityEndpoint, err = socketPath("identity-endpoint", o.identityEndpoint); err != nil {
			return o, err
		}
	}
	o.kubeletRoot, o.mapsRoot = filepath.Clean(o.kubeletRoot), filepath.Clean(o.mapsRoot)
	o.registrationPath = cmp.Or(o.registrationPath, filepath.Join(o.kubeletRoot, "plugins/csi-bpfman/csi.sock"))
	return o, nil
}

// socketPath returns the path in the value of a flag.
func socketPath(name, value string) (string, error) {
	path, isUnix := strings.CutPrefix(value, "unix://")
	if !isUnix || !filepath.IsAbs(path) {
		return "", fmt.Errorf("--%s %q is not of the form unix:///path", name, value)
	}
	return path, nil
}

// gcPercent makes the garbage collector run more often. The plugin uses little CPU, and this saves memory on every
// node.
const gcPercent = 50

func main() {
	o, err := parseFlags()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if o.probe {
		if err := probe(o.endpoint); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	debug.SetGCPercent(gcPercent)
	runtime.MemProfileRate = 0 // nobody reads the samples, and they take half a megabyte
	log := logs.Setup(os.Stderr, os.Getenv(logs.Variable))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, o, log); err != nil {
		log.Error("Stopped", "error", err)
		os.Exit(1)
	}
	log.Info("Stopped")
}

// run serves CSI, and keeps the plugin registered with the kubelet, until the context ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	daemon, err := program.NewDaemon(o.daemonSocket, o.mapsRoot)
	if err != nil {
		return err
	}
	defer daemon.Close()

	policy, err := newPolicy(o.clusterAccess)
	if err != nil {
		return err
	}
	volumes := maps.NewVolumes(filepath.Join(o.kubeletRoot, "pods"), o.selinuxContext)
	counted := metrics.New()
	plugin := driver.New(driver.Options{
		NodeName: o.nodeName,
		Version:  version.Version,
		Programs: daemon,
		Volumes:  volumes,
		Policy:   policy,
		Denied:   counted.Denied,
		Log:      log,
	})
	counted.Volumes(plugin.Count, log)
	registered := keeper(o, log)
	if registered != nil {
		counted.Registered(registered.Served)
	}
	servers, ctx := errgroup.WithContext(ctx)
	calls := grpc.ChainUnaryInterceptor(driver.Trace(log), counted.Calls)
	if err := serveCSI(ctx, servers, o, plugin, calls); err != nil {
		return err
	}
	if err := serveMetrics(ctx, servers, o.metricsAddress, counted.Handler(), volumes.Ready, log); err != nil {
		return err
	}
	follow(ctx, servers, daemon, plugin, o.mapsRoot, log)
	log.Info("Serving CSI", "driver", v1alpha1.CSIDriverName, "version", version.Version, "socket", o.endpoint, "node", o.nodeName)
	if registered != nil {
		servers.Go(func() error { return registered.Run(ctx) })
	}
	return servers.Wait()
}

// keeper returns what keeps the plugin registered with the kubelet, or nil if only the sidecar can register it.
func keeper(o options, log *slog.Logger) *registration.Keeper {
	if _, err := os.Stat(o.registrationDir); err != nil {
		log.Info("Lost registrations with the kubelet can't be restored", "error", err)
		return nil
	}
	return &registration.Keeper{
		Plugin: &registration.Plugin{
			Name: v1alpha1.CSIDriverName, Endpoint: o.registrationPath, Directory: o.registrationDir, Log: log,
		},
		Check: registration.CheckInterval,
		Grace: registration.SidecarGrace,
	}
}

// unwatchedPace is the polling interval for programs if the node has no inotify instance left. Instances are
// limited, and all processes of root share them.
const unwatchedPace = 5 * time.Second

// follow updates the volumes when their programs change.
func follow(ctx context.Context, servers *errgroup.Group, daemon *program.Daemon, plugin *driver.Driver, mapsRoot string, log *slog.Logger) {
	changes := make(chan struct{}, 1)
	changed := func() {
		daemon.Changed()
		select {
		case changes <- struct{}{}:
		default: // the pending notification covers this change too
		}
	}
	servers.Go(func() error {
		for said := ""; ; {
			err := maps.Watch(ctx, mapsRoot, changed)
			if err == nil {
				return nil
			}
			if said != err.Error() {
				said = err.Error()
				log.Error("Failed to watch programs; checking them periodically instead", "pace", unwatchedPace.String(), "error", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(unwatchedPace):
				changed()
			}
		}
	})
	servers.Go(func() error {
		plugin.Follow(ctx, changes)
		return nil
	})
}

func newPolicy(clusterAccess string) (access.Policy, error) {
	switch clusterAccess {
	case accessAll:
		return access.All{}, nil
	case accessRead, accessRBAC:
	default:
		return nil, fmt.Errorf("--cluster-access %q is not one of %s, %s, %s", clusterAccess, accessAll, accessRead, accessRBAC)
	}
	config, err := restclient.InCluster(userAgent)
	if err != nil {
		return nil, fmt.Errorf("--cluster-access=%s: %w", clusterAccess, err)
	}
	rbac, err := access.NewRBAC(config)
	if err != nil {
		return nil, err
	}
	if clusterAccess == accessRead {
		return access.Read{Writers: rbac}, nil
	}
	return rbac, nil
}

// serveCSI serves all services at one socket, and the identity service at another one.
func serveCSI(ctx context.Context, servers *errgroup.Group, o options, plugin *driver.Driver, calls grpc.ServerOption) error {
	server := grpc.NewServer(calls)
	plugin.Register(server)
	if err := serve(ctx, servers, o.endpoint, server); err != nil || o.identityEndpoint == "" {
		return err
	}
	identity := grpc.NewServer(calls)
	plugin.RegisterIdentity(identity)
	return serve(ctx, servers, o.identityEndpoint, identity)
}

func serve(ctx context.Context, servers *errgroup.Group, path string, server *grpc.Server) error {
	listener, err := socket.Listen(ctx, path)
	if err != nil {
		return err
	}
	servers.Go(func() error { return socket.Serve(ctx, listener, server) })
	return nil
}

// serveMetrics starts to serve metrics to clients that RBAC allows, and probes. Address 0 turns it off.
func serveMetrics(ctx context.Context, servers *errgroup.Group, address string, handler http.Handler, ready func() error, log *slog.Logger) error {
	if address == "0" {
		return nil
	}
	certified, err := scrape.TLS("bpfman-csi")
	if err != nil {
		return err
	}
	protected, err := protect(handler, log)
	if err != nil {
		return err
	}
	servers.Go(func() error { return scrape.Serve(ctx, address, scrape.Endpoint(protected, ready), certified, log) })
	return nil
}

// userAgent distinguishes the plugin in audit logs from the agent, which has the same ServiceAccount.
const userAgent = "bpfman-csi"

// protect lets the API server decide who can scrape. Without an API server, nobody can.
func protect(handler http.Handler, log *slog.Logger) (http.Handler, error) {
	config, err := restclient.InCluster(userAgent)
	if errors.Is(err, rest.ErrNotInCluster) {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no cluster to authorize the request", http.StatusServiceUnavailable)
		}), nil
	}
	if err != nil {
		return nil, fmt.Errorf("authorize scrapes: %w", err)
	}
	filter, err := scrape.NewFilter(config)
	if err != nil {
		return nil, err
	}
	return filter.Protect(handler, log), nil
}

const probeTimeout = 5 * time.Second

// probe asks the plugin at socket whether it is ready.
func probe(socket string) error {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("plugin at %s: %w", socket, err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	response, err := csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return fmt.Errorf("probe the plugin at %s: %w", socket, err)
	}
	if !response.GetReady().GetValue() {
		return errors.New("the plugin isn't ready: see its log")
	}
	return nil
}
