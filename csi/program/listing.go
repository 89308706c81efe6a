// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// listing shares what the daemon lists among all who ask: it serves one call at
// a time, and many volumes come and go at once.
type listing struct {
	ask func(context.Context) ([]Program, error)

	calls   singleflight.Group
	mu      sync.Mutex
	latest  snapshot
	changed time.Time
}

// snapshot is what the daemon listed when it was asked at some time.
type snapshot struct {
	programs []Program
	asked    time.Time
}

// outdate has the daemon asked again whatever is known.
func (l *listing) outdate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// since returns what the daemon listed when it was asked at that time or later,
// and after all changes. The call is shared: it goes on when ctx ends.
func (l *listing) since(ctx context.Context, since time.Time) ([]Program, error) {
	for {
		l.mu.Lock()
		latest, changed := l.latest, l.changed
		l.mu.Unlock()
		if !latest.asked.Before(since) && !latest.asked.Before(changed) {
			return latest.programs, nil
		}
		// A call that began too early ends first: the daemon wouldn't serve both.
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
