// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pins compares the maps that bytecode pins by name (LIBBPF_PIN_BY_NAME)
// with the maps that are pinned on the node under these names, and replaces them.
// The daemon of v0.6.0 uses a pinned map regardless of its definition. If the
// definition has changed, the kernel rejects the program, or the program writes
// values that the map's readers don't expect.
package pins

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Dir is the directory in which the daemon of v0.6.0 pins maps by name, like
// libbpf.
const Dir = "/sys/fs/bpf"

// aside is the prefix of the names of pins that are set aside.
const aside = "bpfman-replaced-"

// Map is the definition of a map.
type Map struct {
	Name      string
	Type      ebpf.MapType
	KeySize   uint32 // bytes
	ValueSize uint32 // bytes
}

func (m Map) String() string {
	return fmt.Sprintf("type %s, %d-byte keys, and %d-byte values", m.Type, m.KeySize, m.ValueSize)
}

// inKernel returns the definition with the sizes that the kernel reports for the map. Bytecode
// can leave out sizes of types for which the kernel accepts only that of a number. The
// daemon's loader, aya 0.13.1, ignores the declared value size of maps for redirects.
func (m Map) inKernel() Map {
	const number, redirect = 4, 8
	switch m.Type {
	case ebpf.PerfEventArray, ebpf.ProgramArray, ebpf.CGroupArray, ebpf.ArrayOfMaps, ebpf.XSKMap:
		m.KeySize, m.ValueSize = cmp.Or(m.KeySize, number), cmp.Or(m.ValueSize, number)
	case ebpf.HashOfMaps:
		m.ValueSize = cmp.Or(m.ValueSize, number)
	case ebpf.DevMap, ebpf.DevMapHash, ebpf.CPUMap:
		m.ValueSize = redirect // others can have pinned one with that of a number
	default:
	}
	return m
}

// Misfit is a pinned map whose definition differs from the declared one.
type Misfit struct {
	Declared, Pinned Map
	// ID is the kernel's ID of the pinned map.
	ID uint32
	// path is the path of the pin for this process.
	path string
}

func (m Misfit) String() string {
	return problem.Notef(problem.PinnedMapDiffers, "the pinned map %s has %s, but the bytecode declares %s", filepath.Join(Dir, m.Pinned.Name), m.Pinned, m.Declared).Text
}

// Misfits compares the declared maps that are pinned by name with those that are pinned in a directory.
// It ignores flags and the maximum number of entries, because the loader adapts
// some of them.
func Misfits(dir string, declared []reader.Map) ([]Misfit, error) {
	var misfits []Misfit
	for _, d := range declared {
		// The name comes from an untrusted object.
		if !d.Pinned || d.Name != filepath.Base(d.Name) || d.Name == "." || d.Name == ".." {
			continue
		}
		want := Map{Name: d.Name, Type: ebpf.MapType(d.Type), KeySize: d.KeySize, ValueSize: d.ValueSize}.inKernel()
		m := Misfit{Declared: want, path: filepath.Join(dir, want.Name)}
		err := m.look()
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case m.Pinned.inKernel() != want:
			misfits = append(misfits, m)
		}
	}
	return misfits, nil
}

// look reads the definition and the ID of the map that is pinned now.
func (m *Misfit) look() error {
	pinned, err := ebpf.LoadPinnedMap(m.path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return problem.Errorf(problem.PinNotReplaced, "open pinned map: %w", err)
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return problem.Errorf(problem.PinNotReplaced, "read shape of pinned map %s: %w", m.Declared.Name, err)
	}
	id, ok := info.ID()
	if !ok {
		return problem.Errorf(problem.PinNotReplaced, "pinned map %s: the kernel reports no ID", m.Declared.Name)
	}
	m.ID = uint32(id)
	m.Pinned = Map{Name: m.Declared.Name, Type: info.Type, KeySize: info.KeySize, ValueSize: info.ValueSize}
	return nil
}

// SetAside renames the pin, so that a loader creates the map again. It fails if another
// map was pinned there meanwhile.
func (m Misfit) SetAside() error {
	now := Misfit{Declared: m.Declared, path: m.path}
	if err := now.look(); err != nil {
		return err
	}
	if now.ID != m.ID {
		return problem.Errorf(problem.PinNotReplaced, "pinned map %s: another map has replaced it", m.Declared.Name)
	}
	if err := os.Rename(m.path, filepath.Join(filepath.Dir(m.path), aside+m.Declared.Name)); err != nil {
		return problem.Errorf(problem.PinNotReplaced, "set pin aside: %w", err)
	}
	return nil
}

// Replaced returns the names of the maps in a directory whose pins are set aside.
func Replaced(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, problem.Errorf(problem.PinNotReplaced, "list pinned maps: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, is := strings.CutPrefix(e.Name(), aside); is && !e.IsDir() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Settle ends a replacement. If the map that is now pinned under the name is in use, Settle
// removes the pin that was set aside. Otherwise, it puts that pin back, because what should
// have used the new map isn't loaded.
func Settle(dir, name string, used func(id uint32) bool) error {
	before := filepath.Join(dir, aside+name)
	now := Misfit{Declared: Map{Name: name}, path: filepath.Join(dir, name)}
	switch err := now.look(); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case used(now.ID):
		if err := os.Remove(before); err != nil {
			return problem.Errorf(problem.PinNotReplaced, "remove replaced pin: %w", err)
		}
		return nil
	}
	if err := os.Rename(before, now.path); err != nil {
		return problem.Errorf(problem.PinNotReplaced, "put pin back: %w", err)
	}
	return nil
}
