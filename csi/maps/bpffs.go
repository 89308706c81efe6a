// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nobody is a user and group id that no pod can have, because Kubernetes limits ids to
// 31 bits. The owner of a file could make it accessible even without capabilities.
const nobody = math.MaxUint32 - 1

// source is the prefix of a volume's device in the mount table. A slash and the volume's
// id follow.
const source = "csi.bpfman.io"

// isBPFFS reports whether file is on a bpffs, according to statfs.
func isBPFFS(file *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "fstatfs", Path: file.Name(), Err: err}
	}
	return stat.Type == unix.BPF_FS_MAGIC, nil
}

// newBPFFS returns the root of a new bpffs that isn't mounted anywhere. It can be filled
// while nobody sees it. If the file is closed or the process dies before attach, the
// kernel removes the bpffs. A bpffs doesn't support SELinux labels on files, only one
// label for the whole file system, which is set when it is created. If label is empty,
// none is set.
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
	root, err := hideIterators(os.NewFile(uintptr(fd), "detached bpffs"))
	if err != nil {
		return nil, err
	}
	if err := access.apply(root, access.directoryMode()); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// hideIterators returns an empty directory of the new bpffs, which is its root if that
// is empty. A kernel with CONFIG_BPF_PRELOAD adds maps.debug and progs.debug to the root
// of each new bpffs. They list the maps and programs of the whole node, and can't be
// removed. In this case, the volume is a directory below that root. Before Linux 6.15, a
// directory of a file system that isn't mounted can't be mounted. The files then stay
// visible, but only root with CAP_DAC_OVERRIDE can open them. hideIterators closes root unless it
// returns it.
func hideIterators(root *os.File) (*os.File, error) {
	iterators, err := iteratorsOf(root)
	if err != nil {
		root.Close()
		return nil, err
	}
	if len(iterators) == 0 {
		return root, nil
	}
	directory, err := subdirectory(root)
	if errors.Is(err, unix.EINVAL) {
		if err := seal(root, iterators); err != nil {
			root.Close()
			return nil, err
		}
		return root, nil
	}
	root.Close()
	return directory, err
}

// iteratorsOf returns the names of the files that the kernel put into the root of a new
// bpffs.
func iteratorsOf(root *os.File) ([]string, error) {
	directory, err := openDirectory(root, ".", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list a new bpffs: %w", err)
	}
	return names, nil
}

// subdirectory creates a directory in root, and returns a detached mount of it. If the
// kernel doesn't support that, the error has [unix.EINVAL] in its chain, and root is
// unchanged.
func subdirectory(root *os.File) (*os.File, error) {
	const name = "volume"
	at := int(root.Fd())
	if err := unix.Mkdirat(at, name, 0o700); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(root.Name(), name), Err: err}
	}
	fd, err := unix.OpenTree(at, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open_tree of a new bpffs: %w", err), removeDirectory(root, name))
	}
	return os.NewFile(uintptr(fd), "detached bpffs"), nil
}

// seal removes access to the kernel's iterators for everyone but root with CAP_DAC_OVERRIDE,
// for whom modes don't matter.
func seal(root *os.File, iterators []string) error {
	for _, name := range iterators {
		iterator, err := openPin(root, name)
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

// setReadOnly makes the whole file system that mount belongs to read-only, or writable
// again. On a read-only file system, the kernel opens no pin for writing (BPF_OBJ_GET)
// and changes no mode, no matter which capabilities a process has. A read-only mount of
// a writable file system prevents neither.
func setReadOnly(mount *os.File, readOnly bool) error {
	option := "rw"
	if readOnly {
		option = "ro"
	}
	context, err := unix.Fspick(int(mount.Fd()), "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("fspick bpffs of %s: %w", mount.Name(), err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigSetFlag(context, option); err != nil {
		return fmt.Errorf("set %s of bpffs of %s: %w", option, mount.Name(), err)
	}
	if err := unix.FsconfigReconfigure(context); err != nil {
		return fmt.Errorf("remount bpffs of %s %s: %w", mount.Name(), option, err)
	}
	return nil
}

// isReadOnly reports whether the file system is read-only.
func isReadOnly(mount *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(mount.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "fstatfs", Path: mount.Name(), Err: err}
	}
	return stat.Flags&unix.ST_RDONLY != 0, nil
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

// detach unmounts the topmost mount of directory. The unmount is lazy, because the open
// directory itself keeps the mount busy. Containers have their own mounts.
func detach(directory *os.File) error {
	if err := unix.Unmount(procPath(directory), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", directory.Name(), err)
	}
	return nil
}
