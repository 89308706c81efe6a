// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package maps mounts pinned eBPF maps as volumes. Each volume is a private bpffs. Its
// pins have the mode and group that the kernel enforces on BPF_OBJ_GET. The mount table
// is the only state.
package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// ErrPath is in the error chain if a caller of the plugin uses a path that isn't
// allowed.
var ErrPath = errors.New("path not allowed")

// resolve prevents a lookup from leaving its start directory, because tenants can
// control what is below it. k8s.io/mount-utils mounts, unmounts, and cleans up by path,
// so a link that appears between two steps would lead them elsewhere. It also runs the
// command umount, which the image doesn't have.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Below returns path relative to root. Both are absolute. path must be clean and
// strictly below root. Below doesn't access the file system.
func Below(root, path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: %q is not absolute", ErrPath, path)
	}
	if len(path) >= unix.PathMax || strings.ContainsFunc(path, unicode.IsControl) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%w: %q is not a clean path", ErrPath, path)
	}
	relative, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(relative) || relative == "." {
		return "", fmt.Errorf("%w: %q is not below %q", ErrPath, path, root)
	}
	return relative, nil
}

// openDirectory opens the directory name below parent for *at calls, as the root of the
// topmost mount there.
func openDirectory(parent *os.File, name string, flags uint64) (*os.File, error) {
	path := filepath.Join(parent.Name(), name)
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: resolve,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%w: %q contains a symbolic link", ErrPath, path)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%w: %q is not a directory", ErrPath, path)
	case err != nil:
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openRoot opens a directory from the configuration. It follows symbolic links, because
// the configuration is trusted, and the kubelet's root can be a link.
func openRoot(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// procPath returns a path of an open file for system calls that only accept paths. It
// doesn't depend on the file's own path.
func procPath(file *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd())
}
