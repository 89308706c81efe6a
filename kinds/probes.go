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

// Probes serves /healthz and /readyz, whose answers say which kinds can't be read.
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

// State says which kinds can't be read, and whether that leaves anything to do.
//
// It isn't ready while a kind is still being read for the first time, nor where
// nothing works: what isn't of this API, such as the node, can't be read, or no
// kind of the API can. It is ready where some kinds can't be read and others can.
// Were it not, one definition or right that is missing would make every node's
// pod unready; a DaemonSet's roll-out replaces pods that aren't ready all at
// once, without regard to maxUnavailable, and with the agent goes the daemon. And
// the roll-out which mends the fault would stop at its first pods.
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
			ready = ready && s.empty // it is still being read, which isn't waited for where nothing was missing before
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

// problem says why a kind's objects aren't known. Those of an unused kind are: there
// are none.
func (s *kind) problem(gvk schema.GroupVersionKind) error {
	if s.err != nil || !s.read() && !s.unused() {
		return s.unread(gvk)
	}
	return nil
}

// unneeded tells of a kind that isn't of this API that nobody has asked for it yet, so
// that nothing is known about it.
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
