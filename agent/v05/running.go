// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v05

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// command is the name of the daemon's process in v0.5 and v0.6.
const command = "bpfman-rpc"

// Running reports whether another daemon on the host pins into the same bpffs,
// for example upstream's, or one that the host runs. Then its programs must not
// be touched. Proc is the host's /proc. Bpffs is the path at which each daemon
// mounts the bpffs.
func Running(proc, bpffs string) (bool, error) {
	device, err := deviceOf(bpffs)
	if err != nil {
		return false, fmt.Errorf("look for a running daemon: %w", err)
	}
	processes, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return false, fmt.Errorf("look for a running daemon: %w", err)
	}
	for _, process := range processes {
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != command {
			continue // another process, or it has ended
		}
		theirs, err := deviceOf(filepath.Join(process, "root", bpffs))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("look for a running daemon: %w", err)
		}
		if theirs == device {
			return true, nil
		}
	}
	return false, nil
}

// deviceOf returns the device number of a path's file system.
func deviceOf(path string) (uint64, error) {
	stat, err := statOf(path)
	if err != nil {
		return 0, err
	}
	return stat.Dev, nil
}

func statOf(path string) (*syscall.Stat_t, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("get file status: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("get the status of %s: the kernel returned none", path)
	}
	return stat, nil
}
