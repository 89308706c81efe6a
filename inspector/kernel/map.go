// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Map is a map in the kernel. It doesn't change as long as it exists.
type Map struct {
	ID uint32
	// Name comes from an untrusted source, and isn't escaped.
	Name string
	// Type is bpftool's name for the type.
	Type string
	// KeySize and ValueSize are in bytes.
	KeySize, ValueSize, MaxEntries uint32
	// Memory is in bytes. It is 0 if it depends on the entries, or if the kernel doesn't report it.
	Memory uint64
}

// growing are types of maps that allocate memory for each new entry. Hashes allocate all memory when the map is
// created, unless they have the flag BPF_F_NO_PREALLOC.
var growing = []ebpf.MapType{
	ebpf.LPMTrie, ebpf.SkStorage, ebpf.InodeStorage, ebpf.TaskStorage, ebpf.CGroupStorage, ebpf.PerCPUCGroupStorage,
	ebpf.CgroupStorage, ebpf.SockMap, ebpf.SockHash, ebpf.DevMapHash, ebpf.CPUMap, ebpf.Arena,
}

// ReadMap reads the properties of a map, without its content.
func ReadMap(id uint32) (Map, error) {
	info, err := infoOf(id)
	if err != nil {
		return Map{}, err
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

func infoOf(id uint32) (*ebpf.MapInfo, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil, fmt.Errorf("open map %d: %w", id, err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return nil, fmt.Errorf("read map %d: %w", id, err)
	}
	return info, nil
}
