// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Probes serves /healthz and /readyz. The response of /readyz lists kinds that can't be
// read.
func (k *Kinds) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		problems, ready := k.State()
		switch {
		case !ready:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "not ready")
		case len(problems) > 0:
			fmt.Fprintln(w, "ok, except for kinds that can't be read")
		default:
			fmt.Fprintln(w, "ok")
		}
		for _, problem := range problems {
			fmt.Fprintln(w, problem)
		}
	})
	return mux
}

// State returns which kinds can't be read, and whether the process is ready.
//
// It isn't ready while the first list of a kind is in progress, nor if it can't do
// anything: if a kind of another API, such as Node, can't be read, or if none of the
// API's kinds can. It is ready if only some of the API's kinds can't be read.
// Otherwise, one missing CRD or permission would make the pods on all nodes unready.
// The rollout of a DaemonSet replaces unready pods immediately, regardless of
// maxUnavailable, which would restart the agents and daemons at the same time. And a
// rollout that fixes the problem would stop at its first pods.
func (k *Kinds) State() (problems []string, ready bool) {
	if k.Held != nil {
		if err := k.Held(); err != nil {
			return []string{err.Error()}, false
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ready = true
	own, readable := 0, 0
	for gvk, s := range k.kinds {
		if s.unneeded(gvk) {
			continue
		}
		problem := s.problem(gvk)
		if problem != nil {
			problems = append(problems, problem.Error())
		}
		switch {
		case s.optional:
		case problem != nil && s.err == nil:
			ready = ready && s.empty // it is being listed; no need to wait if it had no objects before
		case gvk.Group != v1alpha1.SchemeGroupVersion.Group:
			ready = ready && s.read()
		case problem == nil:
			readable++
		}
		if gvk.Group == v1alpha1.SchemeGroupVersion.Group {
			own++
		}
	}
	slices.Sort(problems)
	return problems, ready && (own == 0 || readable > 0)
}

// problem returns an error if the objects of a kind aren't known. It returns nil for an
// unused kind, which has no objects.
func (s *kind) problem(gvk schema.GroupVersionKind) error {
	if s.err != nil || !s.read() && !s.unused() {
		return s.unread(gvk)
	}
	return nil
}

// unneeded reports whether a kind of another API hasn't been opened yet. Then nothing
// is known about it.
func (s *kind) unneeded(gvk schema.GroupVersionKind) bool {
	return s.open != nil && gvk.Group != v1alpha1.SchemeGroupVersion.Group
}

var readableDesc = prometheus.NewDesc("bpfman_kind_readable",
	"Whether the objects of a kind can be read: 1 if they can, 0 if the kind's definition or a permission is missing.", []string{"kind"}, nil)

// Describe implements [prometheus.Collector].
func (k *Kinds) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- readableDesc }

// Collect implements [prometheus.Collector].
func (k *Kinds) Collect(collected chan<- prometheus.Metric) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for gvk, s := range k.kinds {
		if s.unneeded(gvk) {
			continue
		}
		value := 1.0
		if s.problem(gvk) != nil {
			value = 0
		}
		collected <- prometheus.MustNewConstMetric(readableDesc, prometheus.GaugeValue, value, gvk.Kind)
	}
}
