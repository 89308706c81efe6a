// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// Dashboards and alerts use these names and labels, which are the same as
// controller-runtime's.
func TestMetricsOfAQueue(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "programs", MetricsProvider: m.Queue()})
	t.Cleanup(q.ShutDown)
	q.Add("waits")
	q.Add("is processed")
	q.Get()
	q.AddRateLimited("retried")
	values := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := metric.GetLabel()
			if len(labels) != 2 || labels[0].GetName() != "controller" || labels[1].GetName() != "name" || labels[1].GetValue() != "programs" {
				continue
			}
			values[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"workqueue_depth": 1, "workqueue_adds_total": 2, "workqueue_retries_total": 1, "workqueue_queue_duration_seconds": 1,
		"workqueue_work_duration_seconds": 0, "workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v, %v", name, got, there)
		}
	}
}

// A nil Metrics counts nothing.
func TestAQueueWithoutMetrics(t *testing.T) {
	var m *Metrics
	if provider := m.Queue(); provider != nil {
		t.Errorf("it is %v", provider)
	}
}

func TestMetricsOfRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	Requests(registry)
	clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", "server")
	clientmetrics.RequestLatency.Observe(t.Context(), "GET", url.URL{}, 0) // isn't registered, and must not panic
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, label := range families[0].GetMetric()[0].GetLabel() {
		labels = append(labels, label.GetName()+"="+label.GetValue())
	}
	if families[0].GetName() != "rest_client_requests_total" || !slices.Equal(labels, []string{"code=200", "host=server", "method=GET"}) {
		t.Errorf("it is %s%q", families[0].GetName(), labels)
	}
}
