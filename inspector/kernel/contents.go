// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HasPrograms reports whether maps of a type can contain programs.
func HasPrograms(mapType string) bool {
	switch mapType {
	case "prog_array", "devmap", "devmap_hash", "cpumap", "sockmap", "sockhash":
		return true
	}
	return false
}

// maxContents is the maximum number of entries of a map to read.
const maxContents = 4096

// ProgramsIn returns the ids of the programs in a map.
func ProgramsIn(of Map) ([]uint32, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(of.ID))
	if err != nil {
		return nil, fmt.Errorf("open map %d: %w", of.ID, err)
	}
	defer m.Close()
	switch of.Type {
	case "sockmap", "sockhash":
		return programsOfSockets(m)
	}
	// A program's id is the last number of a value. In an array of programs, it is the
	// only one. In the other maps, it follows the number of the interface or queue, unless
	// the values have no space for a program.
	const number = 4
	if of.Type != "prog_array" && of.ValueSize < 2*number {
		return nil, nil
	}
	var programs []uint32
	value := make([]uint32, max(1, of.ValueSize/number))
	for key := range min(of.MaxEntries, maxContents) {
		err := m.Lookup(key, value)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return programs, fmt.Errorf("read map %d: %w", of.ID, err)
		}
		if id := value[len(value)-1]; id != 0 {
			programs = append(programs, id)
		}
	}
	return programs, nil
}

// programsOfSockets returns the programs that process the data of a map's sockets.
func programsOfSockets(m *ebpf.Map) ([]uint32, error) {
	var programs []uint32
	for _, attach := range []ebpf.AttachType{ebpf.AttachSkSKBStreamParser, ebpf.AttachSkSKBStreamVerdict, ebpf.AttachSkSKBVerdict, ebpf.AttachSkMsgVerdict} {
		result, err := link.QueryPrograms(link.QueryOptions{Target: m.FD(), Attach: attach})
		if err != nil {
			continue // the kernel doesn't support the query
		}
		for _, attached := range result.Programs {
			programs = append(programs, uint32(attached.ID))
		}
	}
	return programs, nil
}
