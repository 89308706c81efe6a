// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"maps"
	"net/url"
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
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "programs", MetricsProvider: New(registry).Queue()})
	t.Cleanup(q.ShutDown)
	q.Add("waits")
	q.Add("is processed")
	q.Get()
	q.AddRateLimited("retried")
	got := values(t, registry)
	for name, want := range map[string]float64{
		"workqueue_depth": 1, "workqueue_adds_total": 2, "workqueue_retries_total": 1, "workqueue_queue_duration_seconds": 1,
		"workqueue_work_duration_seconds": 0, "workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0,
	} {
		if value, there := got[name+"{controller=programs,name=programs}"]; !there || value != want {
			t.Errorf("%s is %v, %v", name, value, there)
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
	want := map[string]float64{"rest_client_requests_total{code=200,host=server,method=GET}": 1}
	if got := values(t, registry); !maps.Equal(got, want) {
		t.Errorf("it is %v", got)
	}
}
