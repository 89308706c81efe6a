// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/cri"
)

// ShareRuntime mounts the directory of the container runtime's socket below dir, at the
// same path as below run, which is the host's /run. [Runtime] finds the socket there,
// and a container with dir can't access the rest of /run. ShareRuntime mounts the
// directory instead of the socket, because the runtime creates a new socket when it
// restarts. The mount is read-only, and doesn't include mounts below the directory.
// ShareRuntime returns the path of the socket below /run, or "" if there is no known
// runtime. It can be called repeatedly: it keeps a mount that is up to date, and
// unmounts an outdated one.
func ShareRuntime(run, dir string) (string, error) {
	shared := ""
	for _, socket := range cri.Sockets {
		name := filepath.Dir(socket)
		if name == "." {
			name = socket
		}
		source, target := filepath.Join(run, name), filepath.Join(dir, name)
		info, err := os.Stat(filepath.Join(run, socket))
		if shared != "" || err != nil || info.Mode()&os.ModeSocket == 0 {
			source = "" // not the runtime's
		} else {
			shared = socket
		}
		if err := share(source, target); err != nil {
			return "", fmt.Errorf("share the container runtime's %s: %w", name, err)
		}
	}
	return shared, nil
}

// share mounts source on target. If source is empty, it only unmounts target.
func share(source, target string) error {
	there, err := os.Stat(target)
	if source == "" && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if source != "" {
		wanted, err := os.Stat(source)
		if err != nil {
			return err
		}
		if there != nil && os.SameFile(there, wanted) {
			return nil
		}
		if err := makeMountPoint(target, wanted.IsDir()); err != nil {
			return err
		}
	}
	for err = error(nil); err == nil; {
		err = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if !errors.Is(err, unix.EINVAL) { // EINVAL means that nothing is mounted there
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	if source == "" {
		return nil
	}
	return bind(source, target)
}

func makeMountPoint(path string, directory bool) error {
	if directory {
		return os.MkdirAll(path, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// bind mounts source on target. It sets the attributes before it attaches the mount,
// because later changes have no effect on mounts that were already propagated.
func bind(source, target string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: source, Err: err}
	}
	defer unix.Close(fd)
	attributes := &unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
		Propagation: unix.MS_PRIVATE, // of mounts in the runtime's directory
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attributes); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: source, Err: err}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount to", Path: target, Err: err}
	}
	return nil
}
