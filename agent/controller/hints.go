// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
)

// relistSpread is the time over which the agents of all nodes spread a requested list.
const relistSpread = 2 * time.Minute

// hinted is the state from the operator's last hints. Only the handler of hints uses it,
// which is called for one event after the other.
type hinted struct {
	// relist is the time of the last hint to list this node's reports, by the operator's
	// clock.
	relist time.Time
}

// take reports whether this node must list its reports again, and whether all nodes
// must.
func (h *hinted) take(now hints.Hints, node string) (relist, everyNode bool) {
	at, everyNode := now.For(node)
	before := h.relist
	h.relist = at
	return !at.IsZero() && !at.Equal(before), everyNode
}

// onHints handles the operator's hints. It doesn't trust them, but opens a kind or lists
// reports, which checks them. It ignores missing and invalid hints.
func (c *Controller) onHints() toolscache.ResourceEventHandler {
	follow := func(configMap *corev1.ConfigMap) {
		now := hints.Parse(configMap.Data)
		for kind := range now.Kinds {
			c.Cluster.Kinds.Open(v1alpha1.SchemeGroupVersion.WithKind(kind))
		}
		relist, everyNode := c.hinted.take(now, v1alpha1.LabelValue(c.NodeName))
		switch {
		case relist && everyNode:
			c.reports.Relist(rand.N(relistSpread)) //nolint:gosec // only spreads requests
		case relist:
			c.reports.Relist(0)
		}
	}
	return handler[*corev1.ConfigMap]{
		added:   func(now *corev1.ConfigMap, _ bool) { follow(now) },
		updated: func(_, now *corev1.ConfigMap) { follow(now) },
	}
}
