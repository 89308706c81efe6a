// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// snapshotReuse is the maximum age that a snapshot has when it is used again. It is longer
// than callers ask for.
const snapshotReuse = time.Minute

// listing shares the daemon's lists between callers. The daemon serves one call at a
// time, and many volumes can be published at the same time.
type listing struct {
	ask func(ctx context.Context, name string) ([]Program, error)

	calls   singleflight.Group
	mu      sync.Mutex
	latest  map[string]snapshot // by the name of the user object
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

// since returns the programs of user objects with a name, from a call that started at or
// after the given time, and after the last change before this one. Callers share the call, so it continues when ctx ends.
func (l *listing) since(ctx context.Context, name string, since time.Time) ([]Program, error) {
	// What changes from now on doesn't count, because changes can follow each other faster than the daemon responds.
	l.mu.Lock()
	if l.changed.After(since) {
		since = l.changed
	}
	l.mu.Unlock()
	for {
		l.mu.Lock()
		latest := l.latest[name]
		l.mu.Unlock()
		if !latest.asked.Before(since) {
			return latest.programs, nil
		}
		// A call that started too early ends first, because the daemon doesn't serve two
		// at the same time.
		call := l.calls.DoChan(name, func() (any, error) { return nil, l.refresh(context.WithoutCancel(ctx), name) })
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

func (l *listing) refresh(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	asked := time.Now()
	programs, err := l.ask(ctx, name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.latest, func(_ string, s snapshot) bool { return asked.Sub(s.asked) > snapshotReuse })
	if l.latest == nil {
		l.latest = map[string]snapshot{}
	}
	l.latest[name] = snapshot{programs, asked}
	return nil
}
