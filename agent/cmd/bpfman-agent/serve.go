// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent"
	"github.com/bpfman/bpfman-operator/internal/scrape"
)

// serveMetrics serves metrics until ctx ends, to clients that the cluster's RBAC
// authorizes.
func serveMetrics(ctx context.Context, address string, gatherer prometheus.Gatherer, config *rest.Config, log logr.Logger) error {
	filter, err := scrape.NewFilter(config)
	if err != nil {
		return err
	}
	certified, err := scrape.TLS(agent.Component)
	if err != nil {
		return err
	}
	logs := slog.New(logr.ToSlogHandler(log))
	mux := http.NewServeMux()
	mux.Handle("/metrics", filter.Protect(promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}), logs))
	return scrape.Serve(ctx, address, mux, certified, logs)
}
