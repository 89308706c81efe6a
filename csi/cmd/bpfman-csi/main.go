// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-csi is the CSI node plugin csi.bpfman.io: it puts the maps of
// eBPF programs that bpfman has loaded into pods.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/driver"
	"github.com/bpfman/bpfman-operator/csi/internal/socket"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
	"github.com/bpfman/bpfman-operator/csi/registration"
)

// version is set when an image is built.
var version = "dev"

// Values of --cluster-access.
const (
	accessAll  = "all"
	accessRBAC = "rbac"
)

type options struct {
	endpoint, daemonSocket, mapsRoot, kubeletRoot, nodeName string
	selfRegister                                            bool
	registrationDir, registrationPath                       string
	clusterAccess                                           string
}

func parseFlags() (options, error) {
	var o options
	flag.StringVar(&o.endpoint, "endpoint", "unix:///csi/csi.sock", "Socket on which to serve CSI.")
	flag.StringVar(&o.daemonSocket, "daemon-socket", "/run/bpfman-sock/bpfman.sock", "Socket of the bpfman daemon.")
	flag.StringVar(&o.mapsRoot, "maps-root", "/run/bpfman/fs/maps", "Directory below which the daemon pins maps.")
	flag.StringVar(&o.kubeletRoot, "kubelet-root", "/var/lib/kubelet", "Root directory of the kubelet.")
	flag.StringVar(&o.nodeName, "node-name", os.Getenv("KUBE_NODE_NAME"), "Name of this node (default $KUBE_NODE_NAME).")
	flag.BoolVar(&o.selfRegister, "self-register", false, "Register with the kubelet without node-driver-registrar.")
	flag.StringVar(&o.registrationDir, "registration-dir", "/registration",
		"Directory of the kubelet's plugin registration, for --self-register.")
	flag.StringVar(&o.registrationPath, "registration-path", "",
		"Path of the CSI socket as the kubelet sees it, for --self-register (default <kubelet-root>/plugins/csi-bpfman/csi.sock).")
	flag.StringVar(&o.clusterAccess, "cluster-access", accessAll,
		"Who may mount the maps of cluster-scoped programs: every pod (all), or pods whose ServiceAccount may use the program (rbac).")
	flag.Parse()

	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected arguments: %q", flag.Args())
	}
	if o.nodeName == "" {
		return o, errors.New("--node-name or $KUBE_NODE_NAME is needed")
	}
	path, isUnix := strings.CutPrefix(o.endpoint, "unix://")
	if !isUnix || !filepath.IsAbs(path) {
		return o, fmt.Errorf("--endpoint %q is not of the form unix:///path", o.endpoint)
	}
	o.endpoint = path
	o.kubeletRoot, o.mapsRoot = filepath.Clean(o.kubeletRoot), filepath.Clean(o.mapsRoot)
	o.registrationPath = cmp.Or(o.registrationPath, filepath.Join(o.kubeletRoot, "plugins/csi-bpfman/csi.sock"))
	return o, nil
}

func main() {
	o, err := parseFlags()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	level, known := logLevel(os.Getenv("GO_LOG"))
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if !known {
		log.Warn("unknown GO_LOG, want info, debug or trace", "value", os.Getenv("GO_LOG"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, o, log); err != nil {
		log.Error("stopped", "error", err)
		os.Exit(1)
	}
	log.Info("stopped")
}

// run serves CSI, and then the registration that leads the kubelet to it, until
// the context ends.
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
	server := grpc.NewServer(grpc.UnaryInterceptor(driver.Trace(log)))
	driver.Register(server, driver.Options{
		NodeName: o.nodeName,
		Version:  version,
		Programs: daemon,
		Volumes:  maps.NewVolumes(filepath.Join(o.kubeletRoot, "pods")),
		Policy:   policy,
		Log:      log,
	})
	servers, ctx := errgroup.WithContext(ctx)
	if err := serve(ctx, servers, o.endpoint, server); err != nil {
		return err
	}
	log.Info("serving CSI", "driver", v1alpha1.CSIDriverName, "version", version, "socket", o.endpoint, "node", o.nodeName)
	if o.selfRegister {
		plugin := &registration.Plugin{Name: v1alpha1.CSIDriverName, Endpoint: o.registrationPath, Log: log}
		registrar := grpc.NewServer()
		plugin.Register(registrar)
		if err := serve(ctx, servers, plugin.SocketPath(o.registrationDir), registrar); err != nil {
			return err
		}
	}
	return servers.Wait()
}

func newPolicy(clusterAccess string) (access.Policy, error) {
	switch clusterAccess {
	case accessAll:
		return access.All{}, nil
	case accessRBAC:
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--cluster-access=%s: %w", accessRBAC, err)
		}
		return access.NewRBAC(config)
	default:
		return nil, fmt.Errorf("--cluster-access %q is neither %s nor %s", clusterAccess, accessAll, accessRBAC)
	}
}

func serve(ctx context.Context, servers *errgroup.Group, path string, server *grpc.Server) error {
	listener, err := socket.Listen(ctx, path)
	if err != nil {
		return err
	}
	servers.Go(func() error { return socket.Serve(ctx, listener, server) })
	return nil
}

// logLevel reads a level as bpfman's other components name it.
func logLevel(name string) (level slog.Level, known bool) {
	switch name {
	case "", "info":
		return slog.LevelInfo, true
	case "debug":
		return slog.LevelDebug, true
	case "trace":
		return driver.LevelTrace, true
	case "warn", "warning":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	default:
		return slog.LevelInfo, false
	}
}
