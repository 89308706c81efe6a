// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package metrics provides the plugin's metrics for Prometheus.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/driver"
)

// subsystem is the prefix of the plugin's metrics. CSI plugins that use the community's csi-lib-utils have the same.
const subsystem = "csi_plugin"

// Metrics are the plugin's metrics. The metrics of calls have the name that the CSI
// community uses, csi_plugin_operations_seconds, and its labels.
type Metrics struct {
	registry   metrics.KubeRegistry
	operations *metrics.HistogramVec
	denials    *metrics.Counter
}

// New returns metrics with the value 0.
func New() *Metrics {
	m := &Metrics{
		registry: metrics.NewKubeRegistry(),
		// The buckets of csi-lib-utils begin at 0.1 s. A call of this plugin takes from microseconds, if the volume
		// exists, to the 20 seconds after which it ends.
		operations: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Subsystem: subsystem, Name: "operations_seconds",
			Help:    "Duration of the kubelet's calls, in seconds, by method and gRPC status code.",
			Buckets: []float64{25e-6, 1e-4, 25e-5, 1e-3, 25e-4, 1e-2, 25e-3, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		denials: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem: subsystem, Name: "denials_total",
			Help: "Number of mounts that were refused because the pod's ServiceAccount lacks a permission, including retries.",
		}),
	}
	m.registry.MustRegister(m.denials, m.operations)
	m.registry.RawMustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Denied counts a denied publication.
func (m *Metrics) Denied() { m.denials.Inc() }

// Calls measures every call.
func (m *Metrics) Calls(ctx context.Context, request any, call *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	response, err := handler(ctx, request)
	m.operations.WithLabelValues(v1alpha1.CSIDriverName, call.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
	return response, err
}

// Volumes calls count at each scrape, and exports the numbers of volumes.
func (m *Metrics) Volumes(count func() (driver.Counts, error), log *slog.Logger) {
	m.registry.CustomMustRegister(&volumes{
		live: metrics.NewDesc(subsystem+"_volumes", "Number of volumes that are mounted on this node.", nil, nil, metrics.ALPHA, ""),
		stale: metrics.NewDesc(subsystem+"_stale_volumes",
			"Number of mounted volumes that don't show the maps of their newest program, or of a program that is loaded. Volumes that don't follow reloads on purpose aren't counted.", nil, nil, metrics.ALPHA, ""),
		count: count, log: log,
	})
}

// Registered exports whether the kubelet can find the plugin.
func (m *Metrics) Registered(served func() bool) {
	m.registry.RawMustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "registered",
		Help: "Whether the kubelet can find the plugin: 1 if its registration socket is served, otherwise 0.",
	}, func() float64 {
		if served() {
			return 1
		}
		return 0
	}))
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(m.registry, metrics.HandlerOpts{ErrorHandling: metrics.ContinueOnError}))
	return mux
}

// volumes counts on each scrape, because the mount table is the only state.
type volumes struct {
	metrics.BaseStableCollector
	live, stale *metrics.Desc
	count       func() (driver.Counts, error)
	log         *slog.Logger
}

func (v *volumes) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- v.live
	descriptions <- v.stale
}

func (v *volumes) CollectWithStability(collected chan<- metrics.Metric) {
	counts, err := v.count()
	if err != nil {
		v.log.Error("Failed to count volumes", "error", err)
		return
	}
	collected <- metrics.NewLazyConstMetric(v.live, metrics.GaugeValue, float64(counts.Live))
	collected <- metrics.NewLazyConstMetric(v.stale, metrics.GaugeValue, float64(counts.Stale))
}
