// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command map-exporter serves the content of maps in a volume of csi.bpfman.io as Prometheus metrics. It reads the
// kernel's text representation of the maps. It needs no capability, and no system call that the container
// runtime's seccomp profile forbids, so it can run under the Pod Security Standard restricted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bpfman/bpfman-operator/examples/mapmetrics"
)

// Timeouts of the server. A scrape reads all maps. By default, Prometheus waits for 10 s.
const (
	headerTimeout   = 5 * time.Second
	scrapeTimeout   = 10 * time.Second
	writeTimeout    = 15 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	maxHeaderBytes  = 8 << 10
	scrapesAtOnce   = 2
)

func main() {
	dir := flag.String("maps", "/maps", "Directory with the maps: the mount path of the volume.")
	config := flag.String("config", "/etc/map-exporter/config.yaml", "File that specifies which maps to export, and as which metrics.")
	host := &mapmetrics.Host{}
	flag.StringVar(&host.Proc, "proc", "/proc", "Path of /proc, for the decoders ksym and majorminor.")
	flag.StringVar(&host.Cgroups, "cgroups", "/sys/fs/cgroup", "Path where the node's /sys/fs/cgroup is mounted, for the decoder cgroup.")
	address := flag.String("listen", ":9435", "Address to serve /metrics and /healthz at.")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *config, *address, host, log); err != nil {
		log.Error("map-exporter", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, configFile, address string, host *mapmetrics.Host, log *slog.Logger) error {
	text, err := os.ReadFile(configFile)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	config, err := mapmetrics.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	server := &http.Server{
		Handler:           handler(mapmetrics.NewCollector(dir, config, host, log), log),
		ReadTimeout:       headerTimeout,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	log.Info("serving metrics", "address", listener.Addr().String(), "maps", len(config.Maps))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	// ctx has already ended, because its end starts the shutdown.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ending); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// handler serves the collector's metrics, and a health endpoint.
func handler(collector prometheus.Collector, log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	return mux
}
