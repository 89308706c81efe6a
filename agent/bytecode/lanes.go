// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"time"

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
	places *places
	slice  time.Duration
}

// reading is a read of an image.
type reading struct {
	// host is that of the image's registry.
	host string
	// namespaces returns those whose objects wait for the read.
	namespaces func() []string
	// leave is called when the read doesn't use the lane of the fast ones, or not anymore. If it returns false, the read ends.
	leave func() bool
	// read must return soon after its context ends. It can be called several times.
	read func(context.Context)
}

// lanes limits the number of concurrent processes so that registries that don't respond, or respond slowly, only delay
// their own images. A process that takes longer than its slice moves to the next lane. If there is no place, it ends, and
// starts again when there is one. Images of a host start in the lane where its last one ended, and namespaces take turns in
// each lane. In the last one, where a process can take all its time, they have the same number of places.
type lanes struct {
	lanes [3]lane
	hosts *lru.Cache // the index of a lane, by host
}

func newLanes() *lanes {
	return &lanes{
		lanes: [3]lane{
			{newPlaces(maxFast, false), slice},
			{newPlaces(maxMiddle, false), longSlice},
			{newPlaces(maxSlow, true), 0},
		},
		hosts: lru.New(maxSlowHosts),
	}
}

// errCrowded means that a read is slow, and that there are too many slow ones.
var errCrowded = errors.New("too many images are being read from slow registries")

// run performs a read. It returns an error if ctx ends first, and errCrowded if leave returns false.
func (l *lanes) run(ctx context.Context, r reading) error {
	n := l.laneOf(r.host)
	if n > 0 && !r.leave() {
		return errCrowded
	}
	for {
		p, err := l.lanes[n].places.acquire(ctx, r.namespaces)
		if err != nil {
			return err
		}
		next, ended := l.laneOf(r.host), false
		if next <= n { // otherwise, it was found out while this waited
			ended, next = l.runIn(ctx, n, p, r)
		} else {
			l.lanes[n].places.release(p)
		}
		switch {
		case ended:
			return ctx.Err()
		case n == 0 && !r.leave():
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

// reconsider takes into account that another namespace waits for a read.
func (l *lanes) reconsider() {
	for _, lane := range l.lanes {
		lane.places.reconsider()
	}
}

// runIn calls read in a lane where it has a place. It moves to the next lanes while they have places. It returns false,
// and the lane to wait for, if read didn't end.
func (l *lanes) runIn(ctx context.Context, n int, p *place, r reading) (done bool, next int) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	start, ended, whole := time.Now(), make(chan struct{}), false
	go func() {
		defer close(ended)
		r.read(reading)
		whole = reading.Err() == nil
	}()
	// giveUp returns true if the read ended by itself just before that.
	giveUp := func() bool {
		stop()
		<-ended
		l.lanes[n].places.release(p)
		return whole
	}
	for {
		var over <-chan time.Time
		if limit := l.lanes[n].slice; limit > 0 {
			over = time.After(limit)
		}
		select {
		case <-ended:
			l.lanes[n].places.release(p)
			if time.Since(start) < slice {
				l.hosts.Remove(r.host)
			}
			return true, n
		case <-p.wanted:
			return giveUp(), n
		case <-over:
		}
		l.hosts.Add(r.host, n+1)
		var following *place
		if n > 0 || r.leave() {
			following = l.lanes[n+1].places.tryAcquire(r.namespaces)
		}
		if following == nil {
			return giveUp(), n + 1
		}
		l.lanes[n].places.release(p)
		n, p = n+1, following
	}
}
