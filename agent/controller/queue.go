// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// workers is the number of owners that are processed concurrently, and workersOfNamespace the number
// of those in one namespace, or without one. With several, the daemon, which handles one call at a
// time, needn't wait for the agent's requests to the API server. An owner can have thousands of steps:
// the others are for the owners of other namespaces, which then wait for a few calls only.
const (
	workers            = 16
	workersOfNamespace = 4
)

// A failed owner is retried with a backoff between these times. Events about possible causes
// enqueue it immediately.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// queue contains the owners to reconcile, or whose reports to write. Only one worker at a time has an owner.
type queue struct {
	workqueue.TypedRateLimitingInterface[program.Key]

	name  string
	turns *turns
	// waits contains a timer for each owner that waits for an image.
	waits sync.Map
	// sharers contains the keys of owners that use maps of other programs.
	sharers sync.Map
	// asks are what the owners ask of the node's state. moments is nil if nobody asks.
	asks    asks
	moments *moments
}

// newQueue returns a queue with a name for its metrics.
func newQueue(name string, observed workqueue.MetricsProvider, m *moments) *queue {
	turns := newTurns(workersOfNamespace)
	return &queue{name: name, turns: turns, moments: m, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[program.Key](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[program.Key]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[program.Key]{
				Name: name, MetricsProvider: observed,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[program.Key]{
					Name: name, MetricsProvider: observed, Queue: turns,
				}),
			}),
		})}
}

// Add enqueues an owner after an event. Its plan is made from what is read of the node after that.
func (q *queue) Add(key program.Key) {
	if q.moments == nil {
		q.TypedRateLimitingInterface.Add(key)
		return
	}
	q.addSince(key, sinceAll(q.moments.event()))
}

// addSince is Add for an event that asks for certain reads of the node's state.
func (q *queue) addSince(key program.Key, s since) {
	q.asks.add(key, s)
	q.TypedRateLimitingInterface.Add(key)
}

// reconcileFunc reconciles one owner. It returns the time until the next reconciliation if nothing
// failed, or 0 for none.
type reconcileFunc func(context.Context, program.Key) (again time.Duration, err error)

// waitingError means that images are being read, or that a revision isn't confirmed. The owner is enqueued when they were.
type waitingError struct{ left time.Duration }

func (e *waitingError) Error() string { return "images are being read, or a change isn't confirmed" }

// setShares records whether an owner uses maps of other programs.
func (q *queue) setShares(key program.Key, shares bool) {
	if shares {
		q.sharers.Store(key, struct{}{})
	} else {
		q.sharers.Delete(key)
	}
}

// addSharers enqueues the owners that use maps of other programs.
func (q *queue) addSharers() {
	q.sharers.Range(func(key, _ any) bool {
		q.Add(key.(program.Key)) //nolint:errcheck // the map only has this type
		return true
	})
}

// work processes owners from the queue until it is shut down.
func (q *queue) work(ctx context.Context, reconcile reconcileFunc) {
	for {
		key, ends := q.Get()
		if ends {
			return
		}
		q.process(ctx, key, reconcile)
	}
}

// process reconciles one owner, and enqueues it again if necessary.
func (q *queue) process(ctx context.Context, key program.Key, reconcile reconcileFunc) {
	defer q.Done(key)
	defer q.turns.end(key)
	if waits, ok := q.waits.LoadAndDelete(key); ok {
		waits.(*time.Timer).Stop() //nolint:errcheck // the only type of its values
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("queue", q.name, "object", key.String())
	again, err := safely(logr.NewContext(ctx, log), key, reconcile)
	if waiting := (*waitingError)(nil); errors.As(err, &waiting) {
		// Without Forget: a registry that fails is asked less often each time. AddAfter would add the owner even if it has
		// failed by then.
		q.waits.Store(key, time.AfterFunc(waiting.left, func() { q.Add(key) }))
		return
	}
	if err != nil {
		log.Error(err, "Failed to reconcile; retrying")
		q.AddRateLimited(key)
		return
	}
	q.Forget(key)
	if again > 0 {
		q.AddAfter(key, again)
	}
}

// safely converts a panic to an error, so that one owner can't stop the work on others.
func safely(ctx context.Context, key program.Key, reconcile reconcileFunc) (again time.Duration, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return reconcile(ctx, key)
}
