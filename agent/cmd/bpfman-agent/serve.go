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

// headerTimeout is the maximum time to read the headers of a request.
const headerTimeout = 10 * time.Second

// serve serves HTTP at an address until ctx ends, or HTTPS if certified isn't nil.
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

// serveMetrics serves metrics until ctx ends, to clients that the cluster's RBAC
// authorizes.
func serveMetrics(ctx context.Context, address string, gatherer prometheus.Gatherer, config *rest.Config, log logr.Logger) error {
	filter, err := scrape.NewFilter(config, nil)
	if err != nil {
		return err //nolint:wrapcheck // the error has context
	}
	certified, err := scrape.TLS(component)
	if err != nil {
		return err //nolint:wrapcheck // see above
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", filter.Protect(promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}), slog.New(logr.ToSlogHandler(log))))
	return serve(ctx, address, mux, certified, log)
}
