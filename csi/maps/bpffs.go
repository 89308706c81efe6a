// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// source is what the mount table shows as the device of a volume.
const source = "csi.bpfman.io"

// isBPFFS reports whether file is on a bpffs, as the file system itself says.
func isBPFFS(file *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "fstatfs", Path: file.Name(), Err: err}
	}
	return stat.Type == unix.BPF_FS_MAGIC, nil
}

// newBPFFS returns the root of a new bpffs that is mounted nowhere: it can be
// filled unseen, and is gone when the file is closed, or the process dies,
// before attach.
func newBPFFS(access Access) (*os.File, error) {
	context, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen bpffs: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigSetString(context, "source", source); err != nil {
		return nil, fmt.Errorf("set bpffs source: %w", err)
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("create bpffs: %w", err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsmount bpffs: %w", err)
	}
	root := os.NewFile(uintptr(fd), "detached bpffs")
	if err := access.apply(root, access.directoryMode()); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// attach mounts the detached file system on directory.
func attach(root, directory *os.File) error {
	err := unix.MoveMount(int(root.Fd()), "", int(directory.Fd()), "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", directory.Name(), err)
	}
	return nil
}

// detach unmounts the topmost mount of directory. It is lazy because the open
// directory itself keeps the mount busy; containers hold mounts of their own.
func detach(directory *os.File) error {
	if err := unix.Unmount(procPath(directory), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", directory.Name(), err)
	}
	return nil
}
