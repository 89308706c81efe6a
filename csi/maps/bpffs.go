// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// nobody is a user and group that no pod can have: Kubernetes takes ids of 31
// bits. An owner could open a file to itself, even without capabilities.
const nobody = math.MaxUint32 - 1

// source begins what the mount table shows as the device of a volume; a slash
// and the volume's id follow.
const source = "csi.bpfman.io"

// isBPFFS reports whether file is on a bpffs, as the file system itself says.
func isBPFFS(file *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "fstatfs", Path: file.Name(), Err: err}
	}
	return stat.Type == unix.BPF_FS_MAGIC, nil
}

// newBPFFS returns the root of a new bpffs that is mounted nowhere: it can
// be filled unseen, and is gone when the file is closed, or the process dies,
// before attach. It takes no SELinux labels, but one for all at its start: label,
// unless that is empty.
func newBPFFS(id, label string, access Access) (*os.File, error) {
	context, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen bpffs: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigSetString(context, "source", source+"/"+id); err != nil {
		return nil, fmt.Errorf("set bpffs source: %w", err)
	}
	if label != "" {
		if err := unix.FsconfigSetString(context, "context", label); err != nil {
			return nil, fmt.Errorf("set SELinux context %q of a new bpffs: %w", label, err)
		}
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
	if err := errors.Join(sealIterators(root), access.apply(root, access.directoryMode())); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// sealIterators closes maps.debug and progs.debug to all but the node's root. A
// kernel with CONFIG_BPF_PRELOAD puts them into each new bpffs, they list the
// maps and programs of the whole node, and can't be removed.
func sealIterators(root *os.File) error {
	directory, err := openDirectory(root, ".", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer directory.Close()
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("list a new bpffs: %w", err)
	}
	for _, entry := range entries {
		iterator, err := openPin(directory, entry.Name())
		if err != nil {
			return err
		}
		err = apply(iterator, nobody, nobody, 0)
		iterator.Close()
		if err != nil {
			return err
		}
	}
	return nil
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
