// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpffs finds what is pinned in the BPF file systems of a node, including those
// of containers.
package bpffs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/dirents"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/internal/containerfs"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
)

// Pin is a file that keeps a program, a map, or a link in the kernel.
type Pin struct {
	// Path is the path in the mount namespace of the processes that the file system is
	// mounted for.
	Path string
	// Behind contains the id of what is pinned.
	Behind kernel.Described
	// Place is the place of these processes. It is empty for the host's.
	Place process.Place
}

// Pins are the pins on a node. They cache what each file refers to, because that doesn't
// change.
type Pins struct {
	// All are the pins, sorted by path.
	All []Pin

	proc   string
	mounts []mounted
	known  map[file]kernel.Described
}

// file identifies a file as long as it exists.
type file struct {
	device, inode uint64
	changed       unix.StatxTimestamp
}

// mounted is a BPF file system, or a part of one, that was read.
type mounted struct {
	// process is the directory in /proc of the process that path, where it is mounted, is of.
	process, path string
	directories   []directory
	// each is how many directories Changed looks at in a call, and next the first one of the next call.
	each, next int
}

// directory is a directory with its state. The state changes when a file is added or
// removed.
type directory struct {
	path string // below the mount
	is   file
}

// NewPins returns Pins that are empty until the first scan.
func NewPins(proc string) *Pins { return &Pins{proc: proc} }

// maxLooked is the maximum number of directories that Changed looks at in a call, and minLooked that of one file system in any
// case. Changed takes a few microseconds for each.
const maxLooked, minLooked = 4096, 16

// Changed reports whether something was pinned or unpinned since the scan. If there are many directories, it looks at another
// part of them in each call, and each file system has its share.
func (p *Pins) Changed() bool {
	for i := range p.mounts {
		if p.mounts[i].changed() {
			return true
		}
	}
	return false
}

// share sets how many directories of each file system Changed looks at: all of them, or the same number of each of the largest.
func (p *Pins) share() {
	left := maxLooked
	slices.SortStableFunc(p.mounts, func(a, b mounted) int { return len(a.directories) - len(b.directories) })
	for i := range p.mounts {
		m := &p.mounts[i]
		m.each = min(len(m.directories), max(minLooked, left/(len(p.mounts)-i)))
		left -= m.each
	}
}

// changed reports whether one of the next directories isn't as it was.
func (m *mounted) changed() bool {
	in, err := containerfs.Open(m.process)
	if err != nil {
		return true
	}
	defer func() { _ = in.Close() }()
	root, err := in.Below(m.path)
	if err != nil {
		return true
	}
	defer func() { _ = root.Close() }()
	for range m.each {
		d := m.directories[m.next]
		m.next = (m.next + 1) % len(m.directories)
		if is, err := now(root, d.path); err != nil || is != d.is {
			return true
		}
	}
	return false
}

// now returns the state of the directory that is at the path now.
func now(root *containerfs.Root, path string) (file, error) {
	dir, err := root.Cached(path)
	if err != nil {
		return file{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(dir)
	is, _, err := status(dir)
	return is, err
}

// status returns the identity and the type of an open file, as far as the kernel knows them. It asks no file system, because
// a container can serve one.
func status(fd int) (is file, mode uint16, err error) {
	var s unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_CTIME, &s); err != nil {
		return file{}, 0, fmt.Errorf("statx: %w", err)
	}
	return file{unix.Mkdev(s.Dev_major, s.Dev_minor), s.Ino, s.Ctime}, s.Mode & unix.S_IFMT, nil
}

// Scan reads the BPF file systems of mount namespaces, each once, the host's first. It
// joins errors, and continues after them.
func (p *Pins) Scan(namespaces []process.Namespace) error {
	walk := walk{
		pins: p, known: map[file]kernel.Described{}, leftOfPods: maxFiles, leftOfLists: maxLists, leftOfMounts: maxMounts,
		seen: map[string]bool{}, hidden: map[string]*hiddenError{},
	}
	p.All, p.mounts = nil, nil
	var failures []error
	for i, namespace := range namespaces {
		mounts, err := walk.list(namespace, i > 0)
		if err != nil {
			if !ended(err) {
				failures = append(failures, err)
			}
			continue
		}
		// Read a whole file system before a part of it.
		slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int { return len(a.Root) - len(b.Root) })
		for _, mount := range mounts {
			if i > 0 && !walk.admits(mount) {
				continue
			}
			if err := walk.unlessSeen(namespace, mount, i > 0 || kubelet.PodOf(mount.Mountpoint) != ""); err != nil && !ended(err) {
				failures = append(failures, err)
			}
		}
	}
	if walk.crowded {
		failures = append(failures, fmt.Errorf("some BPF file systems of containers aren't read: only %d in the mounts of each, and %d of all", maxMountsOfOne, maxMounts))
	}
	failures = append(failures, walk.unread()...)
	p.known = walk.known
	p.share()
	slices.SortFunc(p.All, func(a, b Pin) int { return strings.Compare(a.Path, b.Path) })
	return errors.Join(failures...)
}

// hiddenError means that the path of a BPF file system's mount leads to another file system, which is mounted over it or over
// a directory above, or which would have to be asked for it.
type hiddenError struct{ path, kind string }

func (e *hiddenError) Error() string {
	return fmt.Sprintf("%s: not read, because a file system of type %s is in the way", e.path, e.kind)
}

// maxHidden is the maximum number of mounts that are named. Containers can have any number.
const maxHidden = 3

// unread returns errors about mounts that were found in no mount namespace. It is no error if another BPF file system covers one,
// as when /sys/fs/bpf is mounted twice.
func (w *walk) unread() []error {
	maps.DeleteFunc(w.hidden, func(mount string, by *hiddenError) bool { return w.seen[mount] || by.kind == "bpf" })
	all := slices.SortedFunc(maps.Values(w.hidden), func(a, b *hiddenError) int { return strings.Compare(a.path, b.path) })
	var failures []error
	for _, mount := range all[:min(len(all), maxHidden)] {
		failures = append(failures, mount)
	}
	if more := len(all) - len(failures); more > 0 {
		failures = append(failures, fmt.Errorf("and %d more such mounts", more))
	}
	return failures
}

// list returns the mounts of BPF file systems in a mount namespace. Those of containers have a limit.
func (w *walk) list(namespace process.Namespace, ofContainer bool) ([]*mountinfo.Info, error) {
	if !ofContainer {
		return process.Mounts(w.pins.proc, namespace.PID, "bpf")
	}
	mounts, size, err := process.MountsWithin(w.pins.proc, namespace.PID, max(minList, min(maxList, w.leftOfLists)), "bpf")
	w.leftOfLists -= size
	w.leftOfOne = maxMountsOfOne
	if errors.Is(err, process.ErrManyMounts) {
		w.crowded, err = true, nil
	}
	return mounts, err
}

// admits reports whether a container's mount is to be read.
func (w *walk) admits(mount *mountinfo.Info) bool {
	if w.wasSeen(mount) {
		return false
	}
	if w.leftOfOne == 0 || w.leftOfMounts == 0 {
		w.crowded = true
		return false
	}
	w.leftOfOne--
	w.leftOfMounts--
	return true
}

// ended reports whether an error means that the process has ended, or that its mount was
// removed.
func ended(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// walk is the state of one scan.
type walk struct {
	pins  *Pins
	known map[file]kernel.Described
	// seen contains the file systems, or parts of them, that were read, and hidden those that weren't found on their path.
	seen   map[string]bool
	hidden map[string]*hiddenError
	place  process.Place
	// mounted is the current file system.
	mounted mounted
	depth   int
	// left is how many more files can be read in the current file system, and leftOfPods in
	// those of all pods.
	left, leftOfPods int
	// leftOfLists is how many more bytes of the mounts of containers can be read, and leftOfMounts and leftOfOne how many more
	// of their BPF file systems, in all and in the current mount namespace. With crowded, some weren't.
	leftOfLists             int64
	leftOfMounts, leftOfOne int
	crowded                 bool
}

// Limits, because a container could otherwise keep the inspector reading forever. Files are
// pins, links, and directories: whoever can write to a file system can create any number, at
// nearly no cost.
const (
	maxDepth = 32
	// maxFiles is the maximum number of files in a file system of the host, and in those of
	// all pods together.
	maxFiles = 100_000
	// maxOfPod is the maximum number of files in a volume, or a container's file system.
	maxOfPod = 2048
	// minOfPod is the number of files that are read in each of these in any case.
	minOfPod = 64
	// maxLists is the maximum size of the lists of the mounts of all containers together, in bytes, maxList that of a mount
	// namespace, and minList what is read in any case. A process can create 100,000 mounts, also in a user namespace of its own.
	maxLists, maxList, minList = 64 << 20, 4 << 20, 64 << 10
	// maxMounts is the maximum number of BPF file systems that only containers see, and maxMountsOfOne that in one mount namespace.
	maxMounts, maxMountsOfOne = 1024, 64
)

// limit returns the number of files to read in a file system.
func (w *walk) limit(ofPod bool) int {
	if !ofPod {
		return maxFiles
	}
	return max(minOfPod, min(maxOfPod, w.leftOfPods))
}

// unlessSeen reads a file system, unless it was read in another mount namespace.
func (w *walk) unlessSeen(namespace process.Namespace, mount *mountinfo.Info, ofPod bool) error {
	if w.wasSeen(mount) {
		return nil
	}
	err := w.mount(namespace, mount, ofPod)
	if covered := (*hiddenError)(nil); errors.As(err, &covered) {
		w.hidden[partOf(mount, mount.Root)] = covered // another mount namespace can show it
		return nil
	}
	w.seen[partOf(mount, mount.Root)] = err == nil
	return err
}

// wasSeen reports whether a file system, or the part of it that is mounted, was read.
func (w *walk) wasSeen(mount *mountinfo.Info) bool {
	return w.seen[partOf(mount, "/")] || w.seen[partOf(mount, mount.Root)]
}

// partOf identifies a part of a mounted file system.
func partOf(mount *mountinfo.Info, root string) string {
	return fmt.Sprintf("%d:%d%s", mount.Major, mount.Minor, root)
}

// mount reads a file system. A container can have created its files, so mount follows no
// links, and reads only from a BPF file system.
func (w *walk) mount(namespace process.Namespace, mount *mountinfo.Info, ofPod bool) error {
	process := filepath.Join(w.pins.proc, strconv.Itoa(namespace.PID))
	in, err := containerfs.Open(process)
	if err != nil {
		return fmt.Errorf("process %d: %w", namespace.PID, err)
	}
	defer func() { _ = in.Close() }()
	found, err := in.Cached(mount.Mountpoint)
	if served := (*containerfs.ServedError)(nil); errors.As(err, &served) {
		return &hiddenError{mount.Mountpoint, served.Type}
	}
	if err != nil {
		return fmt.Errorf("process %d: open %s: %w", namespace.PID, mount.Mountpoint, err)
	}
	defer unix.Close(found)
	if !containerfs.IsOn(found, mount.ID) {
		kind, err := in.Type(found)
		if err != nil {
			return nil // its mount was removed
		}
		// Another BPF file system can be mounted over it, too.
		if is, _, err := status(found); err != nil || kind != "bpf" || is.device != deviceOf(mount) {
			return &hiddenError{mount.Mountpoint, kind}
		}
	}
	dir, err := unix.Open("/proc/thread-self/fd/"+strconv.Itoa(found), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("process %d: open %s: %w", namespace.PID, mount.Mountpoint, err)
	}
	defer unix.Close(dir)
	limit := w.limit(ofPod)
	w.place, w.depth, w.left = namespace.Place, 0, limit
	w.mounted = mounted{process: process, path: mount.Mountpoint}
	err = w.directory(dir, ".")
	w.pins.mounts = append(w.pins.mounts, w.mounted)
	if ofPod {
		w.leftOfPods -= limit - w.left
	}
	if errors.Is(err, errCrowded) {
		return fmt.Errorf("%s: more than %d files", mount.Mountpoint, limit) // once, not for each directory
	}
	return err
}

func deviceOf(mount *mountinfo.Info) uint64 {
	return unix.Mkdev(uint32(mount.Major), uint32(mount.Minor)) //nolint:gosec // the kernel's numbers have 12 and 20 bits
}

// errCrowded means that a file system has more files than are read.
var errCrowded = errors.New("too many files")

// at returns a path in the mount namespace of the process.
func (w *walk) at(path string) string { return filepath.Join(w.mounted.path, path) }

// directory reads an open directory. path is its path below the mount.
func (w *walk) directory(dir int, path string) error {
	is, _, err := status(dir)
	if err != nil {
		return fmt.Errorf("stat %s: %w", w.at(path), err)
	}
	w.mounted.directories = append(w.mounted.directories, directory{path, is})
	var entries []string
	var failures []error
	err = dirents.Each(dir, func(entry dirents.Entry) bool {
		if w.left == 0 {
			failures = append(failures, errCrowded)
			return false
		}
		w.left--
		entries = append(entries, entry.Name)
		return true
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", w.at(path), err)
	}
	for _, name := range entries {
		if err := w.entry(dir, is.device, filepath.Join(path, name)); err != nil && !ended(err) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// entry reads an entry of an open directory.
func (w *walk) entry(dir int, device uint64, path string) error {
	fd, err := unix.Openat(dir, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", w.at(path), err)
	}
	defer unix.Close(fd)
	is, mode, err := status(fd)
	if err != nil {
		return fmt.Errorf("stat %s: %w", w.at(path), err)
	}
	if is.device != device {
		return nil // another file system is mounted on it, and is read separately
	}
	self := "/proc/thread-self/fd/" + strconv.Itoa(fd)
	switch mode {
	case unix.S_IFREG:
		return w.file(self, w.at(path), is)
	case unix.S_IFDIR:
		if w.depth >= maxDepth {
			return fmt.Errorf("%s: more than %d directories deep", w.at(path), maxDepth)
		}
		sub, err := unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", w.at(path), err)
		}
		defer unix.Close(sub)
		w.depth++
		defer func() { w.depth-- }()
		return w.directory(sub, path)
	}
	return nil
}

// file finds out what an open file refers to.
func (w *walk) file(self, path string, is file) error {
	behind, known := w.known[is] // another link to the file
	if !known {
		behind, known = w.pins.known[is]
	}
	if !known {
		fd, err := kernel.OpenPin(self)
		if err != nil {
			return fmt.Errorf("open what is pinned at %s: %w", path, err)
		}
		behind, err = kernel.Describe("/proc/thread-self/fdinfo/" + strconv.Itoa(fd))
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("read what is pinned at %s: %w", path, err)
		}
	}
	w.known[is] = behind
	w.pins.All = append(w.pins.All, Pin{Path: path, Behind: behind, Place: w.place})
	return nil
}
