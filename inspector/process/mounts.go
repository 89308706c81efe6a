// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
)

// Mounts returns the mounts with the given types that a process sees.
func Mounts(proc string, pid int, types ...string) ([]*mountinfo.Info, error) {
	mounts, _, err := MountsWithin(proc, pid, math.MaxInt64, types...)
	return mounts, err
}

// ErrManyMounts means that a process sees more mounts than are read.
var ErrManyMounts = errors.New("too many mounts")

// MountsWithin is Mounts for a process that others control, which can create any number of mounts. It reads at most a number of
// bytes of the list, and returns how many. With ErrManyMounts, it returns the mounts that it has read.
func MountsWithin(proc string, pid int, most int64, types ...string) (mounts []*mountinfo.Info, size int64, err error) {
	file, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return nil, 0, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	defer file.Close()
	list, err := io.ReadAll(io.LimitReader(file, most))
	size = int64(len(list))
	if err != nil {
		return nil, size, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	cut := size == most
	if cut {
		list = list[:bytes.LastIndexByte(list, '\n')+1]
	}
	mounts, err = mountinfo.GetMountsFromReader(bytes.NewReader(list), mountinfo.FSTypeFilter(types...))
	if err == nil && cut {
		err = ErrManyMounts
	}
	if err != nil {
		err = fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	return mounts, size, err
}
