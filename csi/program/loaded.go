// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"sync"
	"time"

	"github.com/cilium/ebpf"
)

// loadedMaps shares the ids of the maps of all loaded programs between volumes. The kubelet asks about each volume, and each
// answer needs a system call for each map on the node, whoever it belongs to.
type loadedMaps struct {
	// mu is held while read runs, so that it answers all that ask in the meantime.
	mu    sync.Mutex
	ids   map[ebpf.MapID]bool
	began time.Time // zero if there is no answer
}

// since returns the ids from a read that began at the given time or later. Callers must not change them.
func (l *loadedMaps) since(since time.Time, read func() (map[ebpf.MapID]bool, error)) (map[ebpf.MapID]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() && !l.began.Before(since) {
		return l.ids, nil
	}
	began := time.Now()
	ids, err := read()
	if err != nil {
		return nil, err
	}
	l.ids, l.began = ids, began
	return ids, nil
}
