// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// How long starts wait for the objects of a namespace, immediately and then continuously. Container runtimes have one start
// after another wait, so each such wait delays the starts of all others on the node.
const (
	patienceAtOnce = 10 * time.Second
	patienceShare  = 0.02
)

var errStartImpatient = problem.Errorf(problem.StartedBeforeAttached, "starts have waited for the objects of the namespace for %s, and may only wait %.0f%% of the time", patienceAtOnce, 100*patienceShare)

// mostPatient is the number of namespaces whose patience is known. One that wasn't used for the longest time is full again,
// unless pods of thousands of namespaces start on the node.
const mostPatient = 4096

// patience contains how long starts may still wait for the objects of each namespace. The zero value is ready to use.
type patience struct {
	mu   sync.Mutex
	left *lru.Cache // *rate.Limiter of milliseconds by namespace
}

// of returns what is left for a namespace.
func (p *patience) of(namespace string) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		p.left = lru.New(mostPatient)
	}
	if left, known := p.left.Get(namespace); known {
		return left.(*rate.Limiter) //nolint:errcheck // the only type of its values
	}
	left := rate.NewLimiter(patienceShare*rate.Limit(time.Second.Milliseconds()), int(patienceAtOnce.Milliseconds()))
	p.left.Add(namespace, left)
	return left
}

// limit returns a context that ends when starts have waited long enough for the objects of a namespace, and a function that ends
// the wait. Cluster-scoped objects have no limit.
func (p *patience) limit(ctx context.Context, namespace string) (limited context.Context, end func()) {
	if namespace == "" {
		return ctx, func() {}
	}
	left, began := p.of(namespace), time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(left.Tokens()*float64(time.Millisecond)), errStartImpatient)
	return ctx, func() {
		cancel()
		now := time.Now()
		left.ReserveN(now, int(min(now.Sub(began), patienceAtOnce).Milliseconds()))
	}
}
