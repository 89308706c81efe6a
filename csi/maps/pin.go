// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Map is a map pinned by the daemon.
type Map struct {
	Name string
	// Path is the daemon's pin.
	Path string
}

// Access says who may open the pins of a volume, and how.
type Access struct {
	// Group owns the volume; nil leaves it to root.
	Group *uint32
	// ReadOnly keeps users from opening maps for writing. The mode of the pin
	// does that: the kernel ignores a read-only mount on BPF_OBJ_GET.
	ReadOnly bool
}

func (a Access) pinMode() os.FileMode {
	switch {
	case a.Group != nil && a.ReadOnly:
		return 0o440
	case a.Group != nil:
		return 0o660
	case a.ReadOnly:
		return 0o400
	default:
		return 0o600
	}
}

// directoryMode lets pins be reached by whom they are for, and changed by root
// alone.
func (a Access) directoryMode() os.FileMode {
	if a.Group != nil {
		return 0o750
	}
	return 0o755
}

func (a Access) gid() uint32 {
	if a.Group != nil {
		return *a.Group
	}
	return 0
}

// apply gives file, which root keeps, its group and mode.
func (a Access) apply(file *os.File, mode os.FileMode) error {
	return apply(file, 0, int(a.gid()), mode)
}

// apply gives file, which may be opened with O_PATH, its owners and mode.
func apply(file *os.File, uid, gid int, mode os.FileMode) error {
	if err := unix.Fchownat(int(file.Fd()), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("give %s to user %d and group %d: %w", file.Name(), uid, gid, err)
	}
	if err := os.Chmod(procPath(file), mode); err != nil {
		return fmt.Errorf("set mode %o of %s: %w", mode, file.Name(), errors.Unwrap(err))
	}
	return nil
}

// matches reports whether file is a pin with this access.
func (a Access) matches(file *os.File) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "fstat", Path: file.Name(), Err: err}
	}
	return stat.Mode == unix.S_IFREG|uint32(a.pinMode()) && stat.Uid == 0 && stat.Gid == a.gid(), nil
}

// pin pins the map in directory, a bpffs, unless its name is there already,
// and gives the pin its access.
func pin(directory *os.File, m Map, access Access) error {
	original, err := ebpf.LoadPinnedMap(m.Path, nil)
	if err != nil {
		return fmt.Errorf("open map %s: %w", m.Path, err)
	}
	defer original.Close()
	// A map that knows its pin moves it; a clone knows none.
	clone, err := original.Clone()
	if err != nil {
		return fmt.Errorf("clone map %s: %w", m.Path, err)
	}
	defer clone.Close()
	if err := clone.Pin(filepath.Join(procPath(directory), m.Name)); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("pin map %s in %s: %w", m.Name, directory.Name(), err)
	}
	file, err := openPin(directory, m.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	return access.apply(file, access.pinMode())
}

// openPin opens a pin as a file. A root user of the pod can have put anything
// in its place, so no link is followed and nothing but a pin accepted.
func openPin(directory *os.File, name string) (*os.File, error) {
	path := filepath.Join(directory.Name(), name)
	fd, err := unix.Openat(int(directory.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		file.Close()
		return nil, fmt.Errorf("%s is not a pin", path)
	}
	return file, nil
}

// Names lists the maps pinned in directory, which must be below root.
func Names(root, directory string) ([]string, error) {
	relative, err := Below(root, directory)
	if err != nil {
		return nil, err
	}
	top, err := openRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's map pins: %w", err)
	}
	defer top.Close()
	pins, err := openDirectory(top, relative, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open map pins: %w", err)
	}
	defer pins.Close()
	return pinNames(pins)
}

// pinNames lists the pins in directory in order. A name with a dot is none: the
// kernel keeps those for files of its own, like maps.debug.
func pinNames(directory *os.File) ([]string, error) {
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry.Type().IsRegular() && !strings.Contains(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
