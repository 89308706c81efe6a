// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/hints"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// hinted is what was last made of the operator's hints.
type hinted struct {
	mu sync.Mutex
	// relist is when this node's reports were last to be listed again, by the operator's
	// clock.
	relist time.Time
}

// take tells whether this node's reports are to be listed again, and whether those of
// all nodes are.
func (h *hinted) take(now hints.Hints, node string) (relist, everyNode bool) {
	at, everyNode := now.For(node)
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.relist
	h.relist = at
	return !at.IsZero() && !at.Equal(before), everyNode
}

// onHints follows the operator's hints. What one says is verified, not believed: a kind
// is opened, or reports are listed. That hints are gone or garbled says nothing.
func (r *Reconciler) onHints() toolscache.ResourceEventHandler {
	follow := func(configMap *corev1.ConfigMap) {
		now := hints.Parse(configMap.Data)
		for kind := range now.Kinds {
			r.Cluster.Kinds.Open(v1alpha1.SchemeGroupVersion.WithKind(kind))
		}
		relist, everyNode := r.hinted.take(now, v1alpha1.LabelValue(r.NodeName))
		switch {
		case relist && everyNode:
			r.relist(rand.N(relistSpread)) //nolint:gosec // scattered, not secret
		case relist:
			r.relist(0)
		}
	}
	return handler[*corev1.ConfigMap]{
		added:   func(now *corev1.ConfigMap, _ bool) { follow(now) },
		updated: func(_, now *corev1.ConfigMap) { follow(now) },
	}
}
