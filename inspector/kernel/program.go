// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Program is a program in the kernel. It doesn't change as long as it exists.
type Program struct {
	ID uint32
	// Name comes from an untrusted source, and isn't escaped.
	Name string
	// Type is bpftool's name for the type.
	Type string
	Tag  string
	// Loaded is the time of loading, since the boot.
	Loaded time.Duration
	// UID is the id of the user that loaded the program. It is nil if the kernel doesn't
	// report it.
	UID *uint32
	// Maps are the ids of the program's maps, in ascending order.
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
	maps, _ := info.MapIDs() // none if the kernel doesn't report them
	for _, id := range maps {
		read.Maps = append(read.Maps, uint32(id))
	}
	slices.Sort(read.Maps)
	read.Maps = slices.Compact(read.Maps)
	return read, nil
}
