// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpffs finds what is pinned in the BPF file systems of a node, those of
// containers too.
package bpffs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/dirents"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/process"
)

// Pin is a file by which a program, a map or a link stays in the kernel.
type Pin struct {
	// Path is where the processes see it that the file system is mounted for.
	Path string
	// Behind has the id of what is pinned.
	Behind kernel.Described
	// Place is that of these processes; nowhere for the host's.
	Place process.Place
}

// Pins are a node's. They remember what each file is, which doesn't change.
type Pins struct {
	// All are by path.
	All []Pin

	proc        string
	directories []directory
	known       map[file]kernel.Described
}

// file is a file for as long as it is there.
type file struct {
	device, inode uint64
	changed       unix.Timespec
}

// directory is one that changes when a file comes or goes.
type directory struct {
	path string
	is   file
}

// NewPins returns those of no file system.
func NewPins(proc string) *Pins { return &Pins{proc: proc} }

// Changed tells that something was pinned or unpinned since the scan, for a
// system call for each directory.
func (p *Pins) Changed() bool {
	return slices.ContainsFunc(p.directories, func(d directory) bool {
		var stat unix.Stat_t
		return unix.Stat(d.path, &stat) != nil || identify(&stat) != d.is
	})
}

func identify(stat *unix.Stat_t) file {
	return file{uint64(stat.Dev), stat.Ino, stat.Ctim} //nolint:unconvert // 32 bits on some architectures
}

// Scan reads the BPF file systems of mount namespaces, each once, the host's first.
// What fails is told, and the rest is read.
func (p *Pins) Scan(namespaces []process.Namespace) error {
	walk := walk{pins: p, known: map[file]kernel.Described{}}
	p.All, p.directories = nil, nil
	seen := map[string]bool{}
	var failures []error
	for _, namespace := range namespaces {
		mounts, err := process.Mounts(p.proc, namespace.PID, "bpf")
		if err != nil {
			if !ended(err) {
				failures = append(failures, err)
			}
			continue
		}
		// The whole file system is seen before a part of it.
		slices.SortStableFunc(mounts, func(a, b process.Mount) int { return len(a.Root) - len(b.Root) })
		for _, mount := range mounts {
			if seen[mount.Device+"/"] || seen[mount.Device+mount.Root] {
				continue
			}
			if err := walk.mount(namespace, mount); err != nil {
				if !ended(err) {
					failures = append(failures, err)
				}
				continue
			}
			seen[mount.Device+mount.Root] = true
		}
	}
	p.known = walk.known
	slices.SortFunc(p.All, func(a, b Pin) int { return strings.Compare(a.Path, b.Path) })
	return errors.Join(failures...)
}

// ended tells that the process has, or that its mount has gone.
func ended(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// walk is one scan.
type walk struct {
	pins  *Pins
	known map[file]kernel.Described
	place process.Place
	depth int
}

// What a container could make the inspector read without end.
const (
	maxDepth = 32
	maxFiles = 100_000
)

// mount reads a file system. Its files are those that a container has made: no
// link is followed, and nothing is read that isn't of a BPF file system.
func (w *walk) mount(namespace process.Namespace, mount process.Mount) error {
	root := filepath.Join(w.pins.proc, strconv.Itoa(namespace.PID), "root")
	in, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the root of process %d: %w", namespace.PID, err)
	}
	defer unix.Close(in)
	dir, err := unix.Openat2(in, strings.TrimPrefix(mount.Point, "/"), &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("open %s of process %d: %w", mount.Point, namespace.PID, err)
	}
	defer unix.Close(dir)
	var of unix.Statfs_t
	if err := unix.Fstatfs(dir, &of); err != nil || uint32(of.Type) != unix.BPF_FS_MAGIC { //nolint:gosec // a magic number
		return nil // another has taken its place
	}
	w.place, w.depth = namespace.Place, 0
	return w.directory(dir, root, mount.Point)
}

// directory reads an open directory, which processes below root see at path.
func (w *walk) directory(dir int, root, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	w.pins.directories = append(w.pins.directories, directory{filepath.Join(root, path), identify(&stat)})
	var entries []string
	if err := dirents.Each(dir, func(name string) { entries = append(entries, name) }); err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	var failures []error
	for _, name := range entries {
		if len(w.known) >= maxFiles {
			return fmt.Errorf("%s: more than %d pins", path, maxFiles)
		}
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
		return nil // mounted on it; that one is read by itself
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

// file finds what is pinned in an open file.
func (w *walk) file(self, path string, is file) error {
	behind, known := w.pins.known[is]
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
