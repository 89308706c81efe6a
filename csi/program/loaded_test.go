// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
)

// Those that ask at the same time share a read.
func TestLoadedIsShared(t *testing.T) {
	var l loadedMaps
	var reads atomic.Int32
	var all sync.WaitGroup
	asked := time.Now()
	for range 100 {
		all.Go(func() {
			ids, err := l.since(asked, func() (map[ebpf.MapID]bool, error) {
				reads.Add(1)
				return map[ebpf.MapID]bool{7: true}, nil
			})
			if err != nil || !ids[7] {
				t.Errorf("%v, %v", ids, err)
			}
		})
	}
	all.Wait()
	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads", n)
	}
}

// Nobody gets an older answer than asked for.
func TestAgeOfLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l loadedMaps
		reads := 0
		var failure error
		read := func() (map[ebpf.MapID]bool, error) {
			<-time.After(time.Second)
			reads++
			return map[ebpf.MapID]bool{ebpf.MapID(reads): true}, failure
		}
		if _, err := l.since(time.Now(), read); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			old   time.Duration
			reads int
		}{{time.Second, 1}, {500 * time.Millisecond, 2}, {time.Minute, 2}, {0, 3}} {
			ids, err := l.since(time.Now().Add(-c.old), read)
			if err != nil || reads != c.reads || !ids[ebpf.MapID(reads)] {
				t.Errorf("%s old: %v, %v, %d reads, want %d", c.old, ids, err, reads, c.reads)
			}
		}
		failure = errors.New("busy")
		if _, err := l.since(time.Now(), read); !errors.Is(err, failure) {
			t.Errorf("%v", err)
		}
		if ids, err := l.since(time.Now().Add(-time.Minute), read); err != nil || !ids[3] {
			t.Errorf("after a failure: %v, %v", ids, err)
		}
	})
}
