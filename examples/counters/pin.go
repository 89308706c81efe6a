// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package counters

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
)

// Pin is a pinned map that stays open between readings. After a reload of its program, a
// volume of csi.bpfman.io contains the new map at the same path. A map that is already open
// is still the old one. It stays readable, but it no longer changes. Map therefore checks
// whether the file is still the same, which needs no privileges and no call of bpf(2).
type Pin struct {
	// Path is the path of the pin.
	Path string
	// Writable opens the map for reading and writing, as readers of ring buffers have to.
	Writable bool

	opened *ebpf.Map
	file   fs.FileInfo
}

// Map returns the map that the path currently refers to, open for reading. It stays open
// until the next call, or until Close; if the file is gone, it is closed. A caller that waits for data in the map, such as the
// reader of a ring buffer, should regularly check whether it was Replaced.
func (p *Pin) Map() (*ebpf.Map, error) {
	// Stat before opening the map. If the map is replaced in between, the next call
	// notices.
	file, err := os.Stat(p.Path)
	if err != nil {
		_ = p.Close() // an open map stays in the kernel
		return nil, fmt.Errorf("look at map: %w", err)
	}
	if p.opened != nil && os.SameFile(file, p.file) {
		return p.opened, nil
	}
	opened, err := ebpf.LoadPinnedMap(p.Path, &ebpf.LoadPinOptions{ReadOnly: !p.Writable})
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", p.Path, err)
	}
	_ = p.Close() // the map was only read, so no data can be lost
	p.opened, p.file = opened, file
	return opened, nil
}

// Replaced reports whether the path refers to another map than the one that Map returned.
func (p *Pin) Replaced() (bool, error) {
	file, err := os.Stat(p.Path)
	if err != nil {
		return false, fmt.Errorf("look at map: %w", err)
	}
	return p.opened == nil || !os.SameFile(file, p.file), nil
}

// Close closes the map if it is open.
func (p *Pin) Close() error {
	if p.opened == nil {
		return nil
	}
	err := p.opened.Close()
	p.opened = nil
	return err
}
