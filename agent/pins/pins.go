// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pins compares the maps that bytecode pins by name (LIBBPF_PIN_BY_NAME)
// with the maps that are pinned on the node under these names. The daemon of
// v0.6.0 uses a pinned map regardless of its definition. If the definition has
// changed, the kernel rejects the program, or the program writes values that the
// map's readers don't expect.
package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/apis/reader"
)

// Dir is the directory in which the daemon of v0.6.0 pins maps by name, like
// libbpf.
const Dir = "/sys/fs/bpf"

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

// Misfit is a pinned map whose definition differs from the declared one.
type Misfit struct {
	Declared, Pinned Map
	// ID is the kernel's ID of the pinned map.
	ID uint32
	// path is the path of the pin for this process.
	path string
}

func (m Misfit) String() string {
	return fmt.Sprintf("the pinned map %s has %s, but the bytecode declares %s", filepath.Join(Dir, m.Pinned.Name), m.Pinned, m.Declared)
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
		want := Map{Name: d.Name, Type: ebpf.MapType(d.Type), KeySize: d.KeySize, ValueSize: d.ValueSize}
		m := Misfit{Declared: want, path: filepath.Join(dir, want.Name)}
		err := m.look()
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case m.Pinned != want:
			misfits = append(misfits, m)
		}
	}
	return misfits, nil
}

// look reads the definition and the ID of the map that is pinned now.
func (m *Misfit) look() error {
	pinned, err := ebpf.LoadPinnedMap(m.path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open pinned map: %w", err)
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return fmt.Errorf("read shape of pinned map %s: %w", m.Declared.Name, err)
	}
	id, ok := info.ID()
	if !ok {
		return fmt.Errorf("pinned map %s: the kernel reports no ID", m.Declared.Name)
	}
	m.ID = uint32(id)
	m.Pinned = Map{Name: m.Declared.Name, Type: info.Type, KeySize: info.KeySize, ValueSize: info.ValueSize}
	return nil
}

// Remove removes the pin, unless another map was pinned there meanwhile.
func (m Misfit) Remove() error {
	now := Misfit{Declared: m.Declared, path: m.path}
	if err := now.look(); err != nil {
		return err
	}
	if now.ID != m.ID {
		return fmt.Errorf("pinned map %s: another map has replaced it", m.Declared.Name)
	}
	if err := os.Remove(m.path); err != nil {
		return fmt.Errorf("remove pin: %w", err)
	}
	return nil
}
