// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kernel reads programs, links, and maps from the kernel, by their ids. For an
// object that no longer exists, functions return os.ErrNotExist.
package kernel

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Runs returns how often a program ran while the kernel's statistics were enabled, and
// the total time.
func Runs(id uint32) (count uint64, total time.Duration, err error) {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return 0, 0, fmt.Errorf("open program %d: %w", id, err)
	}
	defer program.Close()
	stats, err := program.Stats()
	if err != nil {
		return 0, 0, fmt.Errorf("read the runs of program %d: %w", id, err)
	}
	return stats.RunCount, stats.Runtime, nil
}

// MapMemory returns the memory of a map according to the kernel, in bytes.
func MapMemory(id uint32) (uint64, error) {
	info, err := infoOf(id)
	if err != nil {
		return 0, err
	}
	bytes, _ := info.Memlock() // 0 if the kernel doesn't report it
	return bytes, nil
}
