// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpffs mounts the BPF file system that the daemon pins into.
package bpffs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// source is what the mount table names as the device. The daemon of v0.6.0 knows
// its file system by this very word, and mounts another over it, which nobody
// else sees, where it reads something else.
const source = "none"

// Mount mounts a BPF file system on dir unless one is mounted there. It asks the
// file system, not the mount table's text, and so never mounts over pins.
func Mount(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // users list what is pinned
		return fmt.Errorf("mount bpffs: %w", err)
	}
	mounted, err := Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount(source, dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "mode=0755"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", dir, err)
	}
	return nil
}

// Mounted tells whether dir is in a BPF file system.
func Mounted(dir string) (bool, error) {
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(dir, &stat)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("check the file system of %s: %w", dir, err)
		}
		return stat.Type == unix.BPF_FS_MAGIC, nil
	}
}
