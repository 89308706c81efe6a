// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/globals"
)

// State is what a target shows.
type State struct {
	// Mounted is false if no volume is mounted on the target.
	Mounted bool
	// ReadOnly is true if the volume's file system is read-only.
	ReadOnly bool
	// Pins are sorted by name.
	Pins []Pin
	// Crowded is true if there are so many files that Pins may lack some.
	Crowded bool
}

// Pin is a pinned map.
type Pin struct {
	// Name is the name of the file: see [globals.File].
	Name string
	// ID is the kernel's id of the map. It is 0 if something else than a map is pinned.
	ID ebpf.MapID
	// Bytes is the kernel memory that the map uses.
	Bytes uint64
	// Mode has the permissions. Owner and Group are the ids of the pin's user and group.
	Mode         os.FileMode
	Owner, Group uint32
}

// Complete reports whether the volume has maps with these names, or at least one map if
// names is empty, with this access. It doesn't compare the maps themselves.
func (s State) Complete(names []string, access Access) bool {
	pins := s.Pins
	if len(names) > 0 {
		pins = slices.DeleteFunc(slices.Clone(pins), func(p Pin) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return globals.File(name) == p.Name })
		})
	}
	return len(pins) > 0 && len(pins) >= len(names) && !slices.ContainsFunc(pins, func(p Pin) bool { return !p.has(access) })
}

// Shows reports whether the volume shows these maps and no other, with exactly this
// access.
func (s State) Shows(maps []Map, access Access) bool {
	return s.Mounted && !s.Crowded && s.ReadOnly == access.ReadOnly && len(s.Pins) == len(maps) &&
		!slices.ContainsFunc(maps, func(m Map) bool { return !s.shows(m, access) })
}

// shows reports whether the volume has a pin of the map, with this access.
func (s State) shows(m Map, access Access) bool {
	return slices.ContainsFunc(s.Pins, func(p Pin) bool { return p.Name == globals.File(m.Name) && p.ID == m.ID && p.has(access) })
}

func (p Pin) has(access Access) bool {
	return p.Mode == access.PinMode() && p.Owner == 0 && p.Group == access.gid()
}

// read reads the state of a mounted volume.
func read(directory *os.File) (State, error) {
	readOnly, err := isReadOnly(directory)
	if err != nil {
		return State{}, err
	}
	entries, err := entriesOf(directory, maxFiles)
	if err != nil {
		return State{}, err
	}
	pins, err := pinsAmong(entries, directory)
	return State{Mounted: true, ReadOnly: readOnly, Pins: pins, Crowded: len(entries) == maxFiles}, err
}

// maxFiles is the maximum number of files, links, and directories that are read in a volume.
// It is twice the number of maps that a volume can list. Root in the pod can create any number,
// at nearly no cost.
const maxFiles = 2048

// entriesOf returns at most limit entries of a directory, or all if limit is negative.
func entriesOf(directory *os.File, limit int) ([]os.DirEntry, error) {
	entries, err := directory.ReadDir(limit)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	return entries, nil
}

// pinsIn reads the pins in one of the daemon's directories, sorted by name.
func pinsIn(directory *os.File) ([]Pin, error) {
	entries, err := entriesOf(directory, -1)
	if err != nil {
		return nil, err
	}
	return pinsAmong(entries, directory)
}

// pinsAmong reads the pins among the entries of directory, sorted by name. It leaves out pins
// that disappear in the meantime.
func pinsAmong(entries []os.DirEntry, directory *os.File) ([]Pin, error) {
	var pins []Pin
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isPinName(entry.Name()) {
			continue
		}
		pin, err := readPin(directory, entry.Name())
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNoPin) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pins = append(pins, pin)
	}
	slices.SortFunc(pins, func(a, b Pin) int { return strings.Compare(a.Name, b.Name) })
	return pins, nil
}

func readPin(directory *os.File, name string) (Pin, error) {
	file, err := openPin(directory, name)
	if err != nil {
		return Pin{}, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return Pin{}, err
	}
	pin := Pin{Name: name, Mode: stat.Mode()}
	if owner, ok := stat.Sys().(*syscall.Stat_t); ok {
		pin.Owner, pin.Group = owner.Uid, owner.Gid
	}
	pinned, err := ebpf.LoadPinnedMap(procPath(file), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		// Root in the pod can have pinned something else. A program isn't an error of the
		// kernel. A link is EINVAL, because the kernel opens links only for writing.
		if errno := syscall.Errno(0); errors.As(err, &errno) && errno != unix.EINVAL {
			return Pin{}, fmt.Errorf("open map %s: %w", file.Name(), err)
		}
		return pin, nil
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return Pin{}, fmt.Errorf("identify map %s: %w", file.Name(), err)
	}
	pin.ID, _ = info.ID()
	pin.Bytes, _ = info.Memlock()
	return pin, nil
}

// isPinName reports whether a file can be the pin of a map. Names with a dot are reserved for
// the kernel's own files, such as maps.debug.
func isPinName(name string) bool {
	return !strings.Contains(name, ".") && !strings.HasPrefix(name, temporary)
}
