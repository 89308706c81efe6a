// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpffs mounts the BPF file system in which the daemon pins its objects.
package bpffs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// source is the device in the mount table. The daemon of v0.6.0 only recognizes
// a BPF file system by this source. With any other source, it mounts another one
// over it, in its own mount namespace.
const source = "none"

// Mount mounts a BPF file system on dir unless one is mounted there. To never
// mount over pins, it checks the type of the file system, and doesn't parse the
// mount table.
func Mount(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // users list the pins
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

// Mounted reports whether dir is in a BPF file system.
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
