// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/cri"
)

// ShareRuntime shows the container runtime's own directory of the host's /run, which is
// seen at run, at the same place below dir as well, so that [Runtime] finds its socket
// there: whoever has dir has that part of /run and no other. The directory and not the
// socket, because a runtime that starts again makes a new one; read-only, and without
// what is mounted below it. It returns the socket's path below /run, which is empty
// where no runtime is known. Only what is new is mounted, so it can be called again and
// again; what isn't right any more is unmounted.
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

// share shows source at target, and nothing there if source is empty.
func share(source, target string) error {
	there, err := os.Stat(target)
	if source == "" && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err //nolint:wrapcheck // the caller does
	}
	if source != "" {
		wanted, err := os.Stat(source)
		if err != nil {
			return err //nolint:wrapcheck // the caller does
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
	if !errors.Is(err, unix.EINVAL) { // which says that nothing is mounted there
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	if source == "" {
		return nil
	}
	return bind(source, target)
}

func makeMountPoint(path string, directory bool) error {
	if directory {
		return os.MkdirAll(path, 0o700) //nolint:wrapcheck // the caller does
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	return file.Close() //nolint:wrapcheck // the caller does
}

// bind mounts source on target, read-only from the start: a mount that is changed later
// has been propagated as it was before.
func bind(source, target string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: source, Err: err}
	}
	defer unix.Close(fd)
	attributes := &unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
		Propagation: unix.MS_PRIVATE, // of what the runtime mounts in its directory
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attributes); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: source, Err: err}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount to", Path: target, Err: err}
	}
	return nil
}
