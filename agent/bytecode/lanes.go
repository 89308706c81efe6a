// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/lru"
)

const (
	// slice is the time after which a process isn't fast. With a registry nearby, it takes less. longSlice is the time
	// after which it is slow, also on a machine under load.
	slice, longSlice = 200 * time.Millisecond, time.Second
	// maxFast, maxMiddle, and maxSlow are the numbers of places.
	maxFast, maxMiddle, maxSlow = 8, 4, 10
	// maxSlowHosts is the maximum number of hosts that are known not to be fast.
	maxSlowHosts = 1024
)

// lane is a number of places for processes, and the time that a process has in one. 0 means that it isn't limited.
type lane struct {
	places *semaphore.Weighted
	slice  time.Duration
}

// lanes limits the number of concurrent processes so that registries that don't respond, or respond slowly, only delay
// their own images. A process that takes longer than its slice moves to the next lane. If there is no place, it ends, and
// starts again when there is one. Images of a host start in the lane where its last one ended.
type lanes struct {
	lanes [3]lane
	hosts *lru.Cache // the index of a lane, by host
}

func newLanes() *lanes {
	return &lanes{
		lanes: [3]lane{
			{semaphore.NewWeighted(maxFast), slice},
			{semaphore.NewWeighted(maxMiddle), longSlice},
			{semaphore.NewWeighted(maxSlow), 0},
		},
		hosts: lru.New(maxSlowHosts),
	}
}

// errCrowded means that a read is slow, and that there are too many slow ones.
var errCrowded = errors.New("too many images are being read from slow registries")

// run calls read for an image of a host, possibly several times. Read must return soon after its context ends. Run
// returns an error if ctx ends first. It calls leave when it doesn't use the lane of the fast ones, or not anymore, and ends
// with errCrowded if that returns false.
func (l *lanes) run(ctx context.Context, host string, leave func() bool, read func(context.Context)) error {
	n := l.laneOf(host)
	if n > 0 && !leave() {
		return errCrowded
	}
	for {
		if err := l.lanes[n].places.Acquire(ctx, 1); err != nil {
			return err
		}
		next, ended := l.laneOf(host), false
		if next <= n { // otherwise, it was found out while this waited
			ended, next = l.runIn(ctx, n, host, leave, read)
		} else {
			l.lanes[n].places.Release(1)
		}
		switch {
		case ended:
			return ctx.Err()
		case n == 0 && !leave():
			return errCrowded
		}
		n = next
	}
}

func (l *lanes) laneOf(host string) int {
	n, _ := l.hosts.Get(host)
	index, _ := n.(int)
	return index
}

// runIn calls read in a lane where it has a place. It moves to the next lanes while they have places. It returns false,
// and the lane to wait for, if read didn't end.
func (l *lanes) runIn(ctx context.Context, n int, host string, leave func() bool, read func(context.Context)) (done bool, next int) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	start, ended := time.Now(), make(chan struct{})
	go func() {
		defer close(ended)
		read(reading)
	}()
	for {
		var over <-chan time.Time
		if limit := l.lanes[n].slice; limit > 0 {
			over = time.After(limit)
		}
		select {
		case <-ended:
			l.lanes[n].places.Release(1)
			if time.Since(start) < slice {
				l.hosts.Remove(host)
			}
			return true, n
		case <-over:
		}
		l.hosts.Add(host, n+1)
		if n == 0 && !leave() || !l.lanes[n+1].places.TryAcquire(1) {
			stop()
			<-ended
			l.lanes[n].places.Release(1)
			return false, n + 1
		}
		l.lanes[n].places.Release(1)
		n++
	}
}
