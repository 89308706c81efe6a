// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package containerfs opens files in the root of a container, whose owner chooses what is mounted there.
//
// The owner can serve a file system with FUSE, and leave a request without an answer. The kernel then has whoever looks
// something up there wait, beyond SIGKILL. So this package finds out on which mount a file is before it asks the file system
// for anything, and opens nothing on FUSE. It can't know of file systems below others, such as the layers of an overlay:
// callers that must not wait forever need another process for that, or [Root.Cached].
package containerfs

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is the number of symbolic links that the kernel follows in a path.
	maxLinks = 40
	// maxDepth is the maximum number of directories above a file.
	maxDepth = 256
	// maxPath is PATH_MAX, with which a link's target fits.
	maxPath = 4096
	// resolveCached is RESOLVE_CACHED of Linux 5.12: fail instead of asking a file system.
	resolveCached = 0x20
)

// ServedError means that a file is on a file system that a process serves.
type ServedError struct {
	// Type is the type of the file system, such as fuse.sshfs.
	Type string
}

func (e *ServedError) Error() string {
	return "it is on a file system of type " + e.Type + ", which a process serves: it could make the node wait forever"
}

// Root is the root directory of a process in a container.
type Root struct {
	fd     int
	mounts string // the process's mountinfo
}

// Open opens the root of the process whose directory in a proc file system is given.
func Open(process string) (*Root, error) {
	fd, err := unix.Open(filepath.Join(process, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root directory of the process: %w", err)
	}
	return &Root{fd, filepath.Join(process, "mountinfo")}, nil
}

// At returns a directory of this process's mount namespace as a root.
func At(directory string) (*Root, error) {
	fd, err := unix.Open(directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", directory, err)
	}
	return &Root{fd, "/proc/self/mountinfo"}, nil
}

// Below returns a directory below the root as a root of its own. It opens it as [Root.Cached] does.
func (r *Root) Below(path string) (*Root, error) {
	fd, err := r.Cached(path)
	if err != nil {
		return nil, err
	}
	return &Root{fd, r.mounts}, nil
}

// Close closes the root.
func (r *Root) Close() error { return unix.Close(r.fd) }

// Find opens a path with O_PATH. It resolves symbolic links within the root, and returns a *ServedError for what is on FUSE, or
// behind it. Other errors are those of the kernel. The caller closes the file.
func (r *Root) Find(path string) (int, error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	root, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err //nolint:wrapcheck // see above
	}
	w := walk{root: r, open: []int{root}, left: strings.Split(path, "/")}
	defer w.close()
	if err := r.refuseServed(root); err != nil {
		return -1, err
	}
	for len(w.left) > 0 {
		if err := w.step(); err != nil {
			return -1, err
		}
	}
	return w.take(), nil
}

// Cached opens a directory with O_PATH, if the kernel has the whole path in memory, so that no file system is asked. That is
// the case for mount points, and for BPF file systems. It asks the file systems of the kernel itself, but for a few directories
// only, and returns a *ServedError for more. It follows no links. The file can be on any file system: see
// [Root.Type]. The caller closes it.
func (r *Root) Cached(path string) (int, error) {
	fd, err := cached(r.fd, strings.TrimPrefix(path, "/"))
	switch {
	case errors.Is(err, unix.EINVAL): // Linux before 5.12
		return r.Find(path)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENAMETOOLONG): // of a path, each part can still be short enough
		return r.inMemory(path)
	}
	return fd, err
}

// cached opens a directory below another one, or returns EAGAIN if this isn't possible without asking a file system.
func cached(dir int, path string) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | resolveCached,
	}
	for range cachedTries { // a rename or a mount at the same time makes it fail
		fd, err = unix.Openat2(dir, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err //nolint:wrapcheck // the callers distinguish errors
}

const cachedTries = 8

// kernfs are the types of file systems that the kernel itself serves, and which it asks even for what it has in memory
// (kernfs_dop_revalidate). /sys/fs/bpf is on one of them.
var kernfs = map[string]bool{"sysfs": true, "cgroup": true, "cgroup2": true, "proc": true}

// maxAsked is the maximum number of directories of such file systems in a path: /sys/fs/bpf has two. For each, the mounts of the
// process are read, of which there can be many, and a container can nest any number of cgroups.
const maxAsked = 8

// inMemory is Cached for a path with parts on such file systems.
func (r *Root) inMemory(path string) (int, error) {
	left := maxAsked
	dir, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err //nolint:wrapcheck // see Find
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next, err := cached(dir, name)
		if errors.Is(err, unix.EAGAIN) {
			next, err = r.ask(dir, name, left)
			left--
		}
		_ = unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// ask opens a directory below one that the kernel serves, unless no more of them are to be asked for.
func (r *Root) ask(dir int, name string, left int) (int, error) {
	if kind, err := r.Type(dir); err != nil || !kernfs[kind] || left == 0 {
		return -1, &ServedError{cmp.Or(kind, "unknown")}
	}
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	return fd, err //nolint:wrapcheck // the caller says which directory
}

// Type returns the type of the file system that an open file is on, without asking it.
func (r *Root) Type(fd int) (string, error) {
	mount, err := mountOf(fd)
	if err != nil {
		return "", err
	}
	mounts, err := os.Open(r.mounts)
	if err != nil {
		return "", fmt.Errorf("read the mounts of the process: %w", err)
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// 36 35 98:0 /root /mount options [fields…] - type source options
		fields := strings.Fields(lines.Text())
		for i, field := range fields {
			if fields[0] == mount && field == "-" && i+1 < len(fields) {
				return fields[i+1], nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read the mounts of the process: %w", err)
	}
	return "", errors.New("its mount was removed")
}

// IsOn reports whether an open file is on the mount with an id. It reads no list, however many mounts there are.
func IsOn(fd, mount int) bool {
	is, err := mountOf(fd)
	return err == nil && is == strconv.Itoa(mount)
}

// mountOf returns the id of the mount that an open file is on.
func mountOf(fd int) (string, error) {
	info, err := os.ReadFile("/proc/thread-self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return "", fmt.Errorf("read the mount of a file: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if id, found := strings.CutPrefix(line, "mnt_id:"); found {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("read the mount of a file: there is no mnt_id")
}

func (r *Root) refuseServed(fd int) error {
	kind, err := r.Type(fd)
	if err == nil && (kind == "fuse" || kind == "fuseblk" || strings.HasPrefix(kind, "fuse.")) {
		err = &ServedError{kind}
	}
	return err
}

// walk is the state of one path's resolution.
type walk struct {
	root  *Root
	open  []int    // the directories above what comes next, from the root on, and at the end possibly a file
	left  []string // what is left of the path
	links int
}

func (w *walk) close() {
	for _, fd := range w.open {
		_ = unix.Close(fd)
	}
}

// take returns what was found, which the caller closes.
func (w *walk) take() int {
	found := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	return found
}

// step resolves the next component.
func (w *walk) step() error {
	name := w.left[0]
	w.left = w.left[1:]
	switch {
	case name == "", name == ".":
		return nil
	case name == "..":
		if len(w.open) > 1 {
			_ = unix.Close(w.take())
		}
		return nil
	case len(w.open) > maxDepth:
		return fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	fd, err := w.enter(w.open[len(w.open)-1], name)
	if err != nil {
		return err
	}
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		_ = unix.Close(fd)
		return err //nolint:wrapcheck // see Find
	}
	if kind := status.Mode & unix.S_IFMT; kind != unix.S_IFLNK {
		w.open = append(w.open, fd)
		if kind != unix.S_IFDIR && len(w.left) > 0 {
			return unix.ENOTDIR
		}
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	return w.follow(fd)
}

// enter opens an entry of a directory, which isn't served. The entry can be on another mount.
func (w *walk) enter(dir int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(dir, name, &how)
	if !errors.Is(err, unix.EXDEV) {
		return fd, err //nolint:wrapcheck // see Find
	}
	how.Resolve = 0
	if fd, err = unix.Openat2(dir, name, &how); err != nil {
		return -1, err //nolint:wrapcheck // see Find
	}
	if err := w.root.refuseServed(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// follow puts the target of a symbolic link in front of what is left.
func (w *walk) follow(link int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target := make([]byte, maxPath)
	n, err := unix.Readlinkat(link, "", target)
	if err != nil {
		return err //nolint:wrapcheck // see Find
	}
	to := string(target[:n])
	if strings.HasPrefix(to, "/") {
		for len(w.open) > 1 {
			_ = unix.Close(w.take())
		}
	}
	w.left = append(strings.Split(to, "/"), w.left...)
	return nil
}
