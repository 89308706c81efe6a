// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpffs finds what is pinned in the BPF file systems of a node, including those
// of containers.
package bpffs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/inspector/dirents"
	"github.com/bpfman/bpfman-operator/agent/inspector/kernel"
	"github.com/bpfman/bpfman-operator/agent/inspector/process"
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

	proc        string
	directories []directory
	known       map[file]kernel.Described
}

// file identifies a file as long as it exists.
type file struct {
	device, inode uint64
	changed       unix.Timespec
}

// directory is a directory with its state. The state changes when a file is added or
// removed.
type directory struct {
	// root is the root of the process that path is of.
	root, path string
	is         file
}

// NewPins returns Pins that are empty until the first scan.
func NewPins(proc string) *Pins { return &Pins{proc: proc} }

// Changed reports whether something was pinned or unpinned since the scan. It makes a few
// system calls for each directory.
func (p *Pins) Changed() bool {
	return slices.ContainsFunc(p.directories, func(d directory) bool {
		is, err := d.now()
		return err != nil || is != d.is
	})
}

// now returns the state of the directory that is at the path now.
func (d directory) now() (file, error) {
	in, err := unix.Open(d.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return file{}, fmt.Errorf("open %s: %w", d.root, err)
	}
	defer unix.Close(in)
	dir, err := openIn(in, d.path, unix.O_PATH)
	if err != nil {
		return file{}, err
	}
	defer unix.Close(dir)
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return file{}, fmt.Errorf("stat %s: %w", d.path, err)
	}
	return identify(&stat), nil
}

// openIn opens a directory below an open one. A container can have created what is on the way, so it follows no links.
func openIn(root int, path string, flags uint64) (int, error) {
	dir, err := unix.Openat2(root, strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return dir, nil
}

func identify(stat *unix.Stat_t) file {
	return file{uint64(stat.Dev), stat.Ino, stat.Ctim} //nolint:unconvert // 32 bits on some architectures
}

// Scan reads the BPF file systems of mount namespaces, each once, the host's first. It
// joins errors, and continues after them.
func (p *Pins) Scan(namespaces []process.Namespace) error {
	walk := walk{pins: p, known: map[file]kernel.Described{}, leftOfPods: maxFiles}
	p.All, p.directories = nil, nil
	seen := map[string]bool{}
	var failures []error
	for i, namespace := range namespaces {
		mounts, err := process.Mounts(p.proc, namespace.PID, "bpf")
		if err != nil {
			if !ended(err) {
				failures = append(failures, err)
			}
			continue
		}
		// Read a whole file system before a part of it.
		slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int { return len(a.Root) - len(b.Root) })
		for _, mount := range mounts {
			device := fmt.Sprintf("%d:%d", mount.Major, mount.Minor)
			if seen[device+"/"] || seen[device+mount.Root] {
				continue
			}
			ofPod := i > 0 || kubelet.PodOf(mount.Mountpoint) != ""
			if err := walk.mount(namespace, mount, ofPod); err != nil {
				if !ended(err) {
					failures = append(failures, err)
				}
				continue
			}
			seen[device+mount.Root] = true
		}
	}
	p.known = walk.known
	slices.SortFunc(p.All, func(a, b Pin) int { return strings.Compare(a.Path, b.Path) })
	return errors.Join(failures...)
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
	place process.Place
	depth int
	// left is how many more files can be read in the current file system, and leftOfPods in
	// those of all pods.
	left, leftOfPods int
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
)

// limit returns the number of files to read in a file system.
func (w *walk) limit(ofPod bool) int {
	if !ofPod {
		return maxFiles
	}
	return max(minOfPod, min(maxOfPod, w.leftOfPods))
}

// mount reads a file system. A container can have created its files, so mount follows no
// links, and reads only from a BPF file system.
func (w *walk) mount(namespace process.Namespace, mount *mountinfo.Info, ofPod bool) error {
	root := filepath.Join(w.pins.proc, strconv.Itoa(namespace.PID), "root")
	in, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the root of process %d: %w", namespace.PID, err)
	}
	defer unix.Close(in)
	dir, err := openIn(in, mount.Mountpoint, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("process %d: %w", namespace.PID, err)
	}
	defer unix.Close(dir)
	var of unix.Statfs_t
	if err := unix.Fstatfs(dir, &of); err != nil || uint32(of.Type) != unix.BPF_FS_MAGIC { //nolint:gosec // a magic number
		return nil // something else was mounted in its place
	}
	limit := w.limit(ofPod)
	w.place, w.depth, w.left = namespace.Place, 0, limit
	err = w.directory(dir, root, mount.Mountpoint)
	if ofPod {
		w.leftOfPods -= limit - w.left
	}
	if errors.Is(err, errCrowded) {
		return fmt.Errorf("%s: more than %d files", mount.Mountpoint, limit) // once, not for each directory
	}
	return err
}

// errCrowded means that a file system has more files than are read.
var errCrowded = errors.New("too many files")

// directory reads an open directory. path is its path below root.
func (w *walk) directory(dir int, root, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	w.pins.directories = append(w.pins.directories, directory{root, path, identify(&stat)})
	var entries []string
	var failures []error
	err := dirents.Each(dir, func(name string) bool {
		if w.left == 0 {
			failures = append(failures, errCrowded)
			return false
		}
		w.left--
		entries = append(entries, name)
		return true
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	for _, name := range entries {
		if err := w.entry(dir, uint64(stat.Dev), root, path, name); err != nil && !ended(err) { //nolint:unconvert // as above
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (w *walk) entry(dir int, device uint64, root, parent, name string) error {
	path := filepath.Join(parent, name)
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if uint64(stat.Dev) != device { //nolint:unconvert // as above
		return nil // another file system is mounted on it, and is read separately
	}
	self := "/proc/thread-self/fd/" + strconv.Itoa(fd)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return w.file(self, path, identify(&stat))
	case unix.S_IFDIR:
		if w.depth >= maxDepth {
			return fmt.Errorf("%s: more than %d directories deep", path, maxDepth)
		}
		sub, err := unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		defer unix.Close(sub)
		w.depth++
		defer func() { w.depth-- }()
		return w.directory(sub, root, path)
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
