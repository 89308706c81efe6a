// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/lru"
)

const (
	// slice is the time after which a process is slow. With a registry nearby, it takes
	// less.
	slice = 200 * time.Millisecond
	// maxFast and maxSlow are the maximum numbers of processes that aren't slow, and that
	// are.
	maxFast = 10
	maxSlow = 12
	// maxSlowHosts is the maximum number of hosts that are known to be slow.
	maxSlowHosts = 1024
)

// lanes limits the number of concurrent processes so that registries that don't respond,
// or respond slowly, only delay their own images. A process that takes longer than a slice
// moves to the slow lane. If there is no place, it ends, and starts again when there is
// one. Images of a host whose last one was slow start there.
type lanes struct {
	fast, slow *semaphore.Weighted
	slowHosts  *lru.Cache
}

func newLanes() *lanes {
	return &lanes{fast: semaphore.NewWeighted(maxFast), slow: semaphore.NewWeighted(maxSlow), slowHosts: lru.New(maxSlowHosts)}
}

// run calls read for an image of a host, once or twice. Read must return soon after its
// context ends. Run returns an error if ctx ends first.
func (l *lanes) run(ctx context.Context, host string, read func(context.Context)) error {
	if _, slow := l.slowHosts.Get(host); !slow {
		if ended, err := l.inSlice(ctx, host, read); ended || err != nil {
			return err
		}
	}
	if err := l.slow.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.slow.Release(1)
	start := time.Now()
	read(ctx)
	if time.Since(start) < slice {
		l.slowHosts.Remove(host)
	}
	return ctx.Err()
}

// inSlice calls read in the fast lane. It returns false if read has to be called in the
// slow lane.
func (l *lanes) inSlice(ctx context.Context, host string, read func(context.Context)) (bool, error) {
	if err := l.fast.Acquire(ctx, 1); err != nil {
		return false, err
	}
	if _, slow := l.slowHosts.Get(host); slow { // found out while this waited
		l.fast.Release(1)
		return false, nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		read(reading)
	}()
	timer := time.NewTimer(slice)
	defer timer.Stop()
	select {
	case <-ended:
		l.fast.Release(1)
		return true, ctx.Err()
	case <-timer.C:
	}
	l.fast.Release(1)
	l.slowHosts.Add(host, true)
	if !l.slow.TryAcquire(1) {
		stop()
		<-ended
		return false, nil
	}
	defer l.slow.Release(1)
	<-ended
	return true, ctx.Err()
}
