// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
)

// daemonPins is the directory where the daemon pins objects, in its container.
const daemonPins = "/run/bpfman/fs"

// Leftovers returns what is left of the programs and maps with the given ids, in the
// kernel and in the daemon's bpffs.
func Leftovers(programs, maps []uint32) ([]string, error) {
	var left []string
	for _, id := range programs {
		program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open program %d: %w", id, err)
		}
		left = append(left, fmt.Sprintf("program %d, %s", id, program))
		if err := program.Close(); err != nil {
			return nil, fmt.Errorf("close program %d: %w", id, err)
		}
	}
	for _, id := range maps {
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open map %d: %w", id, err)
		}
		left = append(left, fmt.Sprintf("map %d, %s", id, m))
		if err := m.Close(); err != nil {
			return nil, fmt.Errorf("close map %d: %w", id, err)
		}
	}
	pins, err := pinsOf(programs)
	return append(left, pins...), err
}

// pinsOf returns the daemon's pins with the ids of programs in their names.
func pinsOf(programs []uint32) ([]string, error) {
	daemons, err := Processes(Daemon)
	if err != nil {
		return nil, err
	}
	var pins []string
	for _, pid := range daemons {
		root := filepath.Join("/proc", strconv.Itoa(pid), "root", daemonPins)
		for _, id := range programs {
			for _, name := range []string{fmt.Sprintf("prog_%d", id), fmt.Sprintf("maps/%d", id)} {
				path := filepath.Join(root, name)
				if _, err := os.Lstat(path); err == nil {
					pins = append(pins, path)
				} else if !errors.Is(err, fs.ErrNotExist) {
					return nil, fmt.Errorf("look for %s: %w", path, err)
				}
			}
		}
	}
	return pins, nil
}
