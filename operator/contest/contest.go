// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package contest detects that another client, such as a second operator, reverts what the operator writes. It
// then delays the operator's writes, so that the two don't overwrite each other in a tight loop.
package contest

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// tolerated is the number of writes within the window that are repeated without a delay, so that drift is
	// repaired immediately.
	tolerated = 5
	window    = time.Minute
	// After that, each repetition waits twice as long as the previous one.
	shortest = 2 * time.Second
	longest  = 5 * time.Minute
)

// Ledger counts repeated writes by key.
type Ledger[K comparable] struct {
	Clock clock.PassiveClock

	mu      sync.Mutex
	records map[K]record
}

type record struct {
	count int
	// quiet is the time when the last repetition expires. next is the time when another one is allowed.
	quiet, next time.Time
}

// Wait returns how long to wait before the next write for the key. It is 0 unless the key is contested.
func (l *Ledger[K]) Wait(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.records[key].next.Sub(l.Clock.Now()))
}

// Repeated records that the key was written again, because another client had reverted the previous write. It
// returns true if this happens so often that it seems to be intended.
func (l *Ledger[K]) Repeated(key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Now()
	if l.records == nil {
		l.records = map[K]record{}
	}
	for k, r := range l.records {
		if r.quiet.Before(now) {
			delete(l.records, k)
		}
	}
	r := l.records[key]
	r.count++
	r.next = now
	if r.count > tolerated {
		r.next = now.Add(min(longest, shortest<<min(r.count-tolerated-1, 16)))
	}
	r.quiet = r.next.Add(window)
	l.records[key] = r
	return r.count > tolerated
}
