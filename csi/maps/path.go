// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package maps puts pinned eBPF maps into volumes: one private bpffs per
// volume, whose pins carry the mode and group that the kernel enforces on
// BPF_OBJ_GET. The mount table is the only state.
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

// ErrPath is in the chain of every error about a path that a caller of the
// plugin must not use.
var ErrPath = errors.New("path not allowed")

// resolve keeps a lookup below its start: what is below may belong to tenants.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Below returns path relative to root. Both are absolute; path must be clean
// and strictly below root. Nothing is looked up.
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

// openDirectory opens the directory name below parent for use in *at calls,
// as the top of whatever is mounted there.
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

// openRoot opens a directory of the configuration, which is trusted, so that
// the kubelet's root may be a symbolic link.
func openRoot(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// procPath names an open file for system calls that only take paths, without
// looking its path up again.
func procPath(file *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd())
}
