// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package counters

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
)

// Pin is a pinned map that stays open between readings. When its program is reloaded, a
// volume of csi.bpfman.io has the new map in place of the old one, at the same path. A map
// that is open already stays the old one: it can still be read, but nothing changes in it
// any more. So Pin looks at the file each time, which is another one then. That takes no
// privilege and no bpf(2).
type Pin struct {
	// Path of the file.
	Path string

	opened *ebpf.Map
	file   fs.FileInfo
}

// Map returns the map that the path shows now, for reading. It is open until the next call,
// or Close. Whoever waits for something in the map, as readers of a ring buffer do, calls it
// now and then meanwhile, and starts again with the new map if it isn't the same one.
func (p *Pin) Map() (*ebpf.Map, error) {
	// Before the map is opened: if it is replaced in between, the next call notices.
	file, err := os.Stat(p.Path)
	if err != nil {
		return nil, fmt.Errorf("look at map: %w", err)
	}
	if p.opened != nil && os.SameFile(file, p.file) {
		return p.opened, nil
	}
	opened, err := ebpf.LoadPinnedMap(p.Path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", p.Path, err)
	}
	_ = p.Close() // of a map that was read: nothing can be lost
	p.opened, p.file = opened, file
	return opened, nil
}

// Close closes the map, if it is open.
func (p *Pin) Close() error {
	if p.opened == nil {
		return nil
	}
	err := p.opened.Close()
	p.opened = nil
	return err //nolint:wrapcheck // says what failed
}
