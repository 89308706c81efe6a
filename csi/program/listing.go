// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// listing shares the daemon's list between callers. The daemon serves one call at a
// time, and many volumes can be published at the same time.
type listing struct {
	ask func(context.Context) ([]Program, error)

	calls   singleflight.Group
	mu      sync.Mutex
	latest  snapshot
	changed time.Time
}

// snapshot is the list that the daemon returned to a call that started at asked.
type snapshot struct {
	programs []Program
	asked    time.Time
}

// outdate makes the next caller get a new list.
func (l *listing) outdate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// since returns a list from a call that started at or after the given time, and after
// the last change. Callers share the call, so it continues when ctx ends.
func (l *listing) since(ctx context.Context, since time.Time) ([]Program, error) {
	for {
		l.mu.Lock()
		latest, changed := l.latest, l.changed
		l.mu.Unlock()
		if !latest.asked.Before(since) && !latest.asked.Before(changed) {
			return latest.programs, nil
		}
		// A call that started too early ends first, because the daemon doesn't serve two
		// at the same time.
		call := l.calls.DoChan("", func() (any, error) { return nil, l.refresh(context.WithoutCancel(ctx)) })
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case result := <-call:
			if result.Err != nil {
				return nil, result.Err
			}
		}
	}
}

func (l *listing) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	asked := time.Now()
	programs, err := l.ask(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = snapshot{programs, asked}
	return nil
}
