// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Program is a program in the kernel. Nothing of it changes as long as it is there.
type Program struct {
	ID uint32
	// Name is any text.
	Name string
	// Type is bpftool's name of it.
	Type string
	Tag  string
	// Loaded is counted from the boot.
	Loaded time.Duration
	// UID is who loaded it; nil where the kernel doesn't say.
	UID *uint32
	// Maps are ids, ascending.
	Maps []uint32
}

// ReadProgram reads a program.
func ReadProgram(id uint32) (Program, error) {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return Program{}, fmt.Errorf("open program %d: %w", id, err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return Program{}, fmt.Errorf("read program %d: %w", id, err)
	}
	read := Program{ID: id, Name: info.Name, Type: ProgramType(uint32(info.Type)), Tag: info.Tag}
	read.Loaded, _ = info.LoadTime()
	if uid, ok := info.CreatedByUID(); ok {
		read.UID = &uid
	}
	maps, _ := info.MapIDs() // none where the kernel doesn't say
	for _, id := range maps {
		read.Maps = append(read.Maps, uint32(id))
	}
	slices.Sort(read.Maps)
	read.Maps = slices.Compact(read.Maps)
	return read, nil
}
