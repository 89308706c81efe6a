// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// Queue returns a provider of the metrics of a work queue, workqueue_*, with the names and labels of
// controller-runtime. Each queue must have a different name.
func (m *Metrics) Queue() workqueue.MetricsProvider {
	if m == nil {
		return nil // selects client-go's default, which doesn't count
	}
	return queues{m.factory}
}

// queues implements [workqueue.MetricsProvider].
type queues struct{ factory promauto.Factory }

// durations contains the limits of buckets, from 10 ns to 1,000 s.
var durations = prometheus.ExponentialBuckets(10e-9, 10, 12)

func options(queue, name, help string) prometheus.Opts {
	return prometheus.Opts{Subsystem: "workqueue", Name: name, Help: help, ConstLabels: prometheus.Labels{"name": queue, "controller": queue}}
}

func (q queues) gauge(queue, name, help string) prometheus.Gauge {
	return q.factory.NewGauge(prometheus.GaugeOpts(options(queue, name, help)))
}

func (q queues) counter(queue, name, help string) prometheus.Counter {
	return q.factory.NewCounter(prometheus.CounterOpts(options(queue, name, help)))
}

func (q queues) histogram(queue, name, help string) prometheus.Histogram {
	o := options(queue, name, help)
	return q.factory.NewHistogram(prometheus.HistogramOpts{Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels, Buckets: durations})
}

func (q queues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.gauge(name, "depth", "Number of items that wait in the queue.")
}

func (q queues) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.counter(name, "adds_total", "Number of items that were added to the queue.")
}

func (q queues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.histogram(name, "queue_duration_seconds", "Time that an item waits in the queue, in seconds.")
}

func (q queues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.histogram(name, "work_duration_seconds", "Time that processing an item takes, in seconds.")
}

func (q queues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.gauge(name, "unfinished_work_seconds", "Sum of the times since when items are being processed, in seconds.")
}

func (q queues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.gauge(name, "longest_running_processor_seconds", "Longest time since when an item is being processed, in seconds.")
}

func (q queues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.counter(name, "retries_total", "Number of items that were added to the queue with a delay.")
}

// Requests counts the process's requests to the API server. It can only be called once, because
// client-go has a global variable for the metric.
func Requests(registry prometheus.Registerer) {
	clientmetrics.Register(clientmetrics.RegisterOpts{RequestResult: requests{promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Number of requests to the API server, by the status of the answer, method, and host.",
	}, []string{"code", "method", "host"})}})
}

// requests implements [clientmetrics.ResultMetric].
type requests struct{ answered *prometheus.CounterVec }

func (r requests) Increment(_ context.Context, code, method, host string) {
	r.answered.WithLabelValues(code, method, host).Inc()
}
