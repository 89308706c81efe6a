// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/scrape"
)

// headerTimeout is how long a client may take to say what it wants.
const headerTimeout = 10 * time.Second

// serve answers at an address until ctx ends, over TLS if there is a configuration for it.
func serve(ctx context.Context, address string, handler http.Handler, certified *tls.Config, log logr.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", address, err)
	}
	server := &http.Server{
		Handler: handler, TLSConfig: certified, ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelDebug),
	}
	context.AfterFunc(ctx, func() { server.Close() })
	if certified != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", address, err)
	}
	return nil
}

// serveMetrics lets those scrape whom the cluster's RBAC allows to, until ctx ends.
func serveMetrics(ctx context.Context, address string, gatherer prometheus.Gatherer, config *rest.Config, log logr.Logger) error {
	filter, err := scrape.NewFilter(config, nil)
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	certified, err := scrape.TLS(component)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", filter.Protect(promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}), slog.New(logr.ToSlogHandler(log))))
	return serve(ctx, address, mux, certified, log)
}
