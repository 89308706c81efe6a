// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package endpoint serves metrics to the users that RBAC allows, and probes to everyone,
// over TLS on one address.
package endpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/scrape"
)

// Server serves /metrics, /healthz, and /readyz.
type Server struct {
	handler   http.Handler
	certified *tls.Config
	log       *slog.Logger
}

// New returns a server for the metrics of gatherer. It asks the API server in config who
// can scrape them. /readyz fails with the error of ready.
func New(component string, config *rest.Config, gatherer prometheus.Gatherer, ready func() error, log *slog.Logger) (*Server, error) {
	filter, err := scrape.NewFilter(config, nil)
	if err != nil {
		return nil, err
	}
	certified, err := scrape.TLS(component)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", filter.Protect(promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}), log))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return &Server{mux, certified, log}, nil
}

// Serve listens on the address until the context ends.
func (s *Server) Serve(ctx context.Context, address string) error {
	return scrape.Serve(ctx, address, s.handler, s.certified, s.log)
}
