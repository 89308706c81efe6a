// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
)

// Mounts returns the mounts with the given types that a process sees.
func Mounts(proc string, pid int, types ...string) ([]*mountinfo.Info, error) {
	file, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, mountinfo.FSTypeFilter(types...))
	if err != nil {
		return nil, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	return mounts, nil
}
