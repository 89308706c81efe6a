// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/btftype"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// A section of global variables (.bss, .data, .rodata) is an array with one value. libbpf and cilium/ebpf tell the
// kernel the types of the variables. The bpfman daemon's loader doesn't, and names the map like the section. But the
// types are in the BTF of the programs that use the map.

// OpenSection opens the section of global variables that one of the programs uses. If none does, or no program
// exists, it returns an [os.ErrNotExist] error.
func OpenSection(programs []uint32, section string) (*Map, error) {
	for _, program := range programs {
		ids, err := mapsOf(program)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			m, err := kernel.ReadMap(id)
			if errors.Is(err, os.ErrNotExist) {
				continue // unloaded in the meantime
			}
			if err != nil {
				return nil, err
			}
			if m.Name == section {
				return Open(id)
			}
		}
	}
	return nil, fmt.Errorf("find %s: %w: the program has no such section of global variables, or doesn't use it", section, os.ErrNotExist)
}

// mapsOf returns the ids of a program's maps, or none if the program doesn't exist.
func mapsOf(program uint32) ([]uint32, error) {
	read, err := kernel.ReadProgram(program)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return read.Maps, err
}

// sectionType returns the type of a section that the kernel has no type of, from a program that uses it. It returns
// nil if there is none.
func sectionType(of live.Map) (btf.Type, error) {
	for spec, err := range typesOfUsers(of.ID) {
		if err != nil {
			return nil, err
		}
		if section := sectionIn(spec, of.Name); section != nil {
			return section, nil
		}
	}
	return nil, nil
}

// typesOfUsers yields the types of each program that uses a map, as far as it has types that can be read. It begins
// with the newest program, which is the most likely one that somebody looks at.
func typesOfUsers(id uint32) iter.Seq2[*btf.Spec, error] {
	return func(yield func(*btf.Spec, error) bool) {
		ids, err := kernel.List()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, program := range slices.Backward(ids.Programs) {
			used, err := mapsOf(program)
			if err != nil {
				yield(nil, err)
				return
			}
			if !slices.Contains(used, id) {
				continue
			}
			if spec, err := kernel.ProgramTypes(program); err == nil && !yield(spec, nil) {
				return
			}
		}
	}
}

// sectionIn returns the type of a section from a program's BTF. If it has none, or it can't be read, it returns nil, and
// the content is shown as hexadecimal digits.
func sectionIn(spec *btf.Spec, name string) btf.Type {
	for t, err := range spec.All() {
		if err != nil {
			return nil
		}
		// The kernel keeps 15 bytes of the name of a map.
		if section, ok := t.(*btf.Datasec); ok && strings.HasPrefix(section.Name, name) {
			return section
		}
	}
	return nil
}

// dumpSection emits an entry for each variable, in the order of their offsets.
func (m *Map) dumpSection(section *btf.Datasec, limit int, emit func(live.DumpLine) error) error {
	value, err := m.m.LookupBytes(uint32(0))
	if err != nil {
		return fmt.Errorf("read map %d: %w", m.info.ID, err)
	}
	variables := slices.SortedFunc(slices.Values(section.Vars), func(a, b btf.VarSecinfo) int { return cmp.Compare(a.Offset, b.Offset) })
	var end live.End
	for _, v := range variables {
		variable, ok := v.Type.(*btf.Var)
		if !ok || uint64(v.Offset)+uint64(v.Size) > uint64(len(value)) {
			continue
		}
		if limit > 0 && end.Entries == limit {
			end.Truncated = true
			break
		}
		entry := &live.Entry{Variable: &live.Variable{Offset: v.Offset, Size: v.Size, Type: btftype.Name(variable.Type)}}
		if entry.Key, err = json.Marshal(variable.Name); err != nil {
			return fmt.Errorf("encode the name of a variable: %w", err)
		}
		if entry.Value, err = json.Marshal(decode(variable.Type, value[v.Offset:v.Offset+v.Size])); err != nil {
			return fmt.Errorf("encode variable %q: %w", variable.Name, err)
		}
		if err := emit(live.DumpLine{Entry: entry}); err != nil {
			return err
		}
		end.Entries++
	}
	return emit(live.DumpLine{End: &end})
}
