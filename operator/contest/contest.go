// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package contest notices that somebody else undoes what the operator writes, such as a second operator, and slows the
// operator down, so that the two don't overwrite each other as fast as they can.
package contest

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// tolerated is how often within the window a write is repeated at once: drift is repaired without delay.
	tolerated = 5
	window    = time.Minute
	// From then on each repetition waits twice as long as the one before.
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
	// quiet is when the last repetition is forgotten, next when another one is due.
	quiet, next time.Time
}

// Wait is how long to wait before the key is written again: 0 unless it is contested.
func (l *Ledger[K]) Wait(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.records[key].next.Sub(l.Clock.Now()))
}

// Repeated notes that the key was written once more, because somebody had undone the write before. It returns true where
// that happens so often that somebody means it.
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
