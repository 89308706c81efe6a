// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package counters reads the counters that eBPF programs keep in pinned per-CPU maps. It
// needs no capability, only permission to read the pins.
package counters

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/mapentries"
)

// Sizes of the values of counters: with packets and bytes, or only with events.
const (
	trafficSize = 16
	eventsSize  = 8
)

// Count is the sum of a map's counters, over all keys and CPUs.
type Count struct {
	Map string
	// Traffic selects the fields that are valid: Packets and Bytes if it is true, and
	// Events otherwise.
	Traffic                bool
	Packets, Bytes, Events uint64
}

// String formats the count in one line that is easy to search.
func (c Count) String() string {
	if c.Traffic {
		return fmt.Sprintf("%s: packets=%d bytes=%d", c.Map, c.Packets, c.Bytes)
	}
	return fmt.Sprintf("%s: events=%d", c.Map, c.Events)
}

// add adds the value of one key on one CPU.
func (c *Count) add(value []byte) {
	if len(value) == trafficSize {
		c.Traffic = true
		c.Packets += binary.NativeEndian.Uint64(value)
		c.Bytes += binary.NativeEndian.Uint64(value[8:])
		return
	}
	c.Events += binary.NativeEndian.Uint64(value)
}

// Names returns the sorted names of the maps that are pinned in a directory. Names with
// a dot aren't maps. The kernel uses them for its own files, such as maps.debug.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list maps: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		if !entry.IsDir() && !strings.Contains(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Read counts the map that the pin currently refers to.
func Read(pin *Pin) (Count, error) {
	m, err := pin.Map()
	if err != nil {
		return Count{}, err
	}
	return Of(m, pin.Path)
}

// Of counts a map. The path of its pin is part of errors.
func Of(m *ebpf.Map, path string) (Count, error) {
	if m.Type() != ebpf.PerCPUArray && m.Type() != ebpf.PerCPUHash {
		return Count{}, fmt.Errorf("map %s holds no counter: type %s is not per CPU", path, m.Type())
	}
	if size := m.ValueSize(); size != trafficSize && size != eventsSize {
		return Count{}, fmt.Errorf("map %s holds no counter: values of %d bytes", path, size)
	}

	count := Count{Map: filepath.Base(path), Traffic: m.ValueSize() == trafficSize}
	for entry, err := range mapentries.All(m) {
		if err != nil {
			return Count{}, fmt.Errorf("read map %s: %w", path, err)
		}
		for _, value := range entry.Values {
			count.add(value)
		}
	}
	return count, nil
}
