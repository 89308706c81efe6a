// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counting returns the ids of the processes that enable the kernel's statistics about
// programs (BPF_ENABLE_STATS). They are enabled as long as there is such a process.
func Counting() ([]int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	counting := []int{}
	for _, process := range processes {
		files, err := os.ReadDir(process + "/fd")
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, fmt.Errorf("list files of %s: %w", process, err)
		}
		for _, file := range files {
			target, err := os.Readlink(process + "/fd/" + file.Name())
			if err != nil || !strings.HasPrefix(target, "anon_inode:bpf-stats") {
				continue // it is closed, or is another file
			}
			id, err := strconv.Atoi(filepath.Base(process))
			if err != nil {
				return nil, fmt.Errorf("process %s: %w", process, err)
			}
			counting = append(counting, id)
			break
		}
	}
	return counting, nil
}
