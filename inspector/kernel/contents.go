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

// HasPrograms tells that maps of a type can have programs in them.
func HasPrograms(mapType string) bool {
	switch mapType {
	case "prog_array", "devmap", "devmap_hash", "cpumap", "sockmap", "sockhash":
		return true
	}
	return false
}

// maxContents is how many entries of a map are looked at.
const maxContents = 4096

// ProgramsIn returns the programs that a map has in it.
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
	// A program's id is the last of a value: alone in an array of programs, behind the
	// interface's or the queue's in the others, unless these have none.
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

// programsOfSockets asks for the programs that look at what a map's sockets get and send.
func programsOfSockets(m *ebpf.Map) ([]uint32, error) {
	var programs []uint32
	for _, attach := range []ebpf.AttachType{ebpf.AttachSkSKBStreamParser, ebpf.AttachSkSKBStreamVerdict, ebpf.AttachSkSKBVerdict, ebpf.AttachSkMsgVerdict} {
		result, err := link.QueryPrograms(link.QueryOptions{Target: m.FD(), Attach: attach})
		if err != nil {
			continue // the kernel is older than the question
		}
		for _, attached := range result.Programs {
			programs = append(programs, uint32(attached.ID))
		}
	}
	return programs, nil
}
