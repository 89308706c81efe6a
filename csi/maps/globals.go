// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/globals"
)

// The kernel keeps the global variables of a program in a map for each section of its object: .bss, .data, or
// .rodata, possibly with a suffix. The daemon doesn't pin these maps, so the plugin opens them by their ids, which
// requires CAP_SYS_ADMIN, as mounting does.

// Globals returns the maps of a program's global variables. Their names are those of the sections, of which the
// kernel keeps 15 bytes. If the program doesn't exist, it returns none.
func Globals(program uint32) ([]Map, error) {
	ids, err := usedBy(program)
	if err != nil {
		return nil, err
	}
	var found []Map
	for _, id := range ids {
		name, err := nameOf(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // unloaded in the meantime
		}
		if err != nil {
			return nil, err
		}
		if globals.IsSection(name) {
			found = append(found, Map{Name: name, ID: id})
		}
	}
	return found, nil
}

// usedBy returns the ids of all maps of a program, or none if the program doesn't exist.
func usedBy(program uint32) ([]ebpf.MapID, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open program %d: %w", program, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("read program %d: %w", program, err)
	}
	ids, _ := info.MapIDs() // none if the kernel doesn't report them
	return ids, nil
}

func nameOf(id ebpf.MapID) (string, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return "", fmt.Errorf("open map %d: %w", id, err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return "", fmt.Errorf("identify map %d: %w", id, err)
	}
	return info.Name, nil
}

// programPin is the prefix of the names of the daemon's pins of programs. The kernel's id of the program follows.
const programPin = "prog_"

// loadedPrograms returns the ids of the programs that the daemon has pinned in a directory.
func loadedPrograms(directory string) ([]uint32, error) {
	pins, err := filepath.Glob(filepath.Join(directory, programPin+"*"))
	if err != nil {
		return nil, fmt.Errorf("list the daemon's programs: %w", err)
	}
	var programs []uint32
	for _, pin := range pins {
		id, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(pin), programPin), 10, 32)
		if err == nil {
			programs = append(programs, uint32(id))
		}
	}
	return programs, nil
}
