// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Map is a map in the kernel. Nothing of it changes as long as it is there.
type Map struct {
	ID uint32
	// Name is any text.
	Name string
	// Type is bpftool's name of it.
	Type string
	// KeySize and ValueSize are in bytes.
	KeySize, ValueSize, MaxEntries uint32
	// Memory is in bytes; 0 where it changes with the entries, or the kernel doesn't say.
	Memory uint64
}

// growing are types of maps whose entries get memory when they are made. Hashes get all of it when the map is, unless it
// has the flag BPF_F_NO_PREALLOC.
var growing = []ebpf.MapType{
	ebpf.LPMTrie, ebpf.SkStorage, ebpf.InodeStorage, ebpf.TaskStorage, ebpf.CGroupStorage, ebpf.PerCPUCGroupStorage,
	ebpf.CgroupStorage, ebpf.SockMap, ebpf.SockHash, ebpf.DevMapHash, ebpf.CPUMap, ebpf.Arena,
}

// ReadMap reads a map's properties, not its content.
func ReadMap(id uint32) (Map, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return Map{}, fmt.Errorf("open map %d: %w", id, err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return Map{}, fmt.Errorf("read map %d: %w", id, err)
	}
	memory, _ := info.Memlock()
	if info.Flags&unix.BPF_F_NO_PREALLOC != 0 || slices.Contains(growing, info.Type) {
		memory = 0
	}
	return Map{
		ID: id, Memory: memory, Name: info.Name, Type: MapType(uint32(info.Type)),
		KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries,
	}, nil
}
