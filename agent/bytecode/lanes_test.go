// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	lan     = 20 * time.Millisecond // a registry nearby
	wan     = 3 * time.Second       // one that is far away
	timeout = 30 * time.Second      // of bpfman-reader
)

// taking returns a read that takes some time, or ends with its context.
func taking(took time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
	}
}

// silent is a registry that doesn't respond.
var silent = taking(timeout)

// always lets reads leave the lane of the fast ones.
func always() bool { return true }

// of returns a read of an image of a host, for an object of a namespace.
func of(namespace, host string, read func(context.Context)) reading {
	return reading{host: host, namespaces: func() []string { return []string{namespace} }, leave: always, read: read}
}

func (l *lanes) free() [3]int {
	var free [3]int
	for i, lane := range l.lanes {
		lane.places.mu.Lock()
		free[i] = lane.places.free
		lane.places.mu.Unlock()
	}
	return free
}

var allFree = [3]int{maxFast, maxMiddle, maxSlow}

// Hosts that don't respond only delay themselves: another host's image is read immediately,
// even if its registry isn't nearby, and all of them get their whole time in the end.
func TestSilentHosts(t *testing.T) {
	for name, c := range map[string]struct {
		hosts, images int // silent hosts, and images of each
		takes, within time.Duration
	}{
		"one host":                         {1, 1, lan, lan},
		"one host with 500 images":         {1, 500, lan, slice + lan},
		"40 hosts":                         {40, 1, lan, 2 * time.Second},
		"40 hosts with 3 images":           {40, 3, lan, 3 * time.Second},
		"40 hosts, a machine under load":   {40, 1, longSlice - lan, 12 * time.Second},
		"500 images, a machine under load": {1, 500, longSlice - lan, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes()
				var all sync.WaitGroup
				var whole atomic.Int32
				for host := range c.hosts {
					for range c.images {
						all.Go(func() {
							err := l.run(t.Context(), of("a", fmt.Sprint(host), func(ctx context.Context) {
								silent(ctx)
								if ctx.Err() == nil {
									whole.Add(1)
								}
							}))
							if err != nil {
								t.Error(err)
							}
						})
					}
				}
				synctest.Wait()
				start := time.Now()
				for range 3 { // also later, when the silent ones are known
					begin := time.Now()
					if err := l.run(t.Context(), of("a", "near", taking(c.takes))); err != nil {
						t.Error(err)
					}
					if took := time.Since(begin); took > c.within {
						t.Errorf("after %s, it took %s", begin.Sub(start), took)
					}
					<-time.After(time.Second)
				}
				all.Wait()
				if got := int(whole.Load()); got != c.hosts*c.images {
					t.Errorf("%d reads got their time, want %d", got, c.hosts*c.images)
				}
			})
		})
	}
}

// What is slow goes on if there is room, and isn't started twice. The number of concurrent
// reads is limited.
func TestSlowHosts(t *testing.T) {
	for reads, again := range map[int]int{1: 0, maxMiddle: 0, maxFast: maxFast - maxMiddle, 60: 2 * 60} { // at most
		t.Run(fmt.Sprint(reads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes()
				var all sync.WaitGroup
				var starts, ends, running, most atomic.Int32
				for n := range reads {
					all.Go(func() {
						err := l.run(t.Context(), of("a", fmt.Sprint(n), func(ctx context.Context) {
							starts.Add(1)
							most.Store(max(most.Load(), running.Add(1)))
							taking(wan)(ctx)
							running.Add(-1)
							if ctx.Err() == nil {
								ends.Add(1)
							}
						}))
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if starts.Load() > int32(reads+again) || ends.Load() != int32(reads) || most.Load() > 2*maxFast+maxMiddle+maxSlow { // those that give way are about to end
					t.Errorf("%d starts, %d ends, %d immediately", starts.Load(), ends.Load(), most.Load())
				}
			})
		})
	}
}

// A read that ends just as it has to make room isn't repeated.
func TestEndsAsItMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		for range maxMiddle {
			l.lanes[1].places.tryAcquire(func() []string { return []string{"b"} })
		}
		reads := 0
		r := of("a", "h", func(ctx context.Context) {
			reads++
			taking(slice + lan)(ctx)
		})
		r.leave = func() bool {
			<-time.After(2 * lan)
			return true
		}
		ctx, stop := context.WithTimeout(t.Context(), timeout)
		defer stop()
		if err := l.run(ctx, r); err != nil || reads != 1 {
			t.Errorf("%d reads, %v", reads, err)
		}
	})
}

// A host whose last image was slow stays in the slow lane until one is fast.
func TestHostsThatBecomeFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		read := func(took time.Duration) {
			if err := l.run(t.Context(), of("a", "h", taking(took))); err != nil {
				t.Error(err)
			}
		}
		for _, step := range []struct {
			took time.Duration
			slow bool // afterwards
		}{{lan, false}, {slice - time.Millisecond, false}, {wan, true}, {wan, true}, {slice, true}, {lan, false}, {lan, false}, {wan, true}} {
			read(step.took)
			if slow := l.laneOf("h") > 0; slow != step.slow {
				t.Errorf("after %s: slow is %v", step.took, slow)
			}
		}
		// It doesn't take a place of the others.
		var all sync.WaitGroup
		for range 2 * maxFast {
			all.Go(func() { read(timeout) })
		}
		synctest.Wait()
		if l.free()[0] != maxFast {
			t.Error("a host that is known to be slow has a fast place")
		}
		all.Wait()
	})
}

// If ctx ends, run returns its error, no matter where it waits, and leaves all places.
func TestLanesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for n := range 3 * (maxFast + maxSlow) {
			all.Go(func() {
				if err := l.run(ctx, of("a", fmt.Sprint(n), silent)); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		<-time.After(slice + lan)
		start := time.Now()
		stop()
		all.Wait()
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %s", took)
		}
		if free := l.free(); free != allFree {
			t.Errorf("free places: %v", free)
		}
		if err := l.run(ctx, of("a", "another", func(context.Context) {})); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A read that may not leave the lane of the fast ones ends when it is slow, no matter whether that is known, is found out, or
// was found out while it waited.
func TestCrowded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		never := func(host string, read func(context.Context)) reading {
			r := of("a", host, read)
			r.leave = func() bool { return false }
			return r
		}
		if err := l.run(t.Context(), never("near", taking(lan))); err != nil {
			t.Error(err)
		}
		var all sync.WaitGroup
		for range 3 * maxFast {
			all.Go(func() {
				if err := l.run(t.Context(), never("h", silent)); !errors.Is(err, errCrowded) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := l.run(t.Context(), never("h", func(context.Context) { t.Error("it was read") })); !errors.Is(err, errCrowded) {
			t.Error(err)
		}
		if free := l.free(); free != allFree {
			t.Errorf("free places: %v", free)
		}
	})
}

// Images of a registry that doesn't respond for some of them delay only those of their own namespaces: another namespace's are
// read immediately, even if the registry is known to be slow, or the images take long. With more namespaces, they take turns.
func TestNamespacesAtASlowHost(t *testing.T) {
	for name, c := range map[string]struct {
		greedy        int // namespaces with 30 reads
		others        []string
		takes, within time.Duration
	}{
		"a namespace":                   {1, []string{"b", "b", "c"}, lan, lan},
		"a namespace, distant images":   {1, []string{"b", "b", "c"}, wan, wan},
		"9 namespaces":                  {9, []string{"b"}, lan, lan},
		"9 namespaces, a distant image": {9, []string{"b"}, wan, wan},
		"more namespaces than places":   {15, []string{"b", "c"}, lan, 2 * timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes()
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for n := range c.greedy {
					for range 30 {
						all.Go(func() {
							for ctx.Err() == nil { // when it failed, it is read again
								_ = l.run(ctx, of(fmt.Sprint("greedy", n), "h", silent))
							}
						})
					}
				}
				<-time.After(3 * timeout / 2)
				for range 5 {
					var both sync.WaitGroup
					for _, namespace := range c.others {
						both.Go(func() {
							start := time.Now()
							if err := l.run(ctx, of(namespace, "h", taking(c.takes))); err != nil {
								t.Error(err)
							}
							if took := time.Since(start); took > c.within {
								t.Errorf("%s: it took %s", namespace, took)
							}
						})
					}
					both.Wait()
					<-time.After(timeout / 7)
				}
				stop()
				all.Wait()
				if free := l.free(); free != allFree {
					t.Errorf("free places: %v", free)
				}
			})
		})
	}
}
