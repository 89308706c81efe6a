// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// btfHeader is struct btf_header in the kernel's linux/btf.h.
type btfHeader struct {
	Magic                                    uint16
	Version, Flags                           uint8
	Size, TypesAt, Types, StringsAt, Strings uint32 // bytes
}

// btfType is struct btf_type. Reference is a type's size or a type's number.
type btfType struct{ Name, Info, Reference uint32 }

func (t btfType) kind() uint32 { return t.Info >> btfKindAt & btfKindMask }

const (
	btfHeaderSize = 24
	btfTypeSize   = 12
	btfMagic      = 0xeb9f
	// maxTypes is the kernel's limit for type numbers (BTF_MAX_TYPE).
	maxTypes = 0xfffff
)

// Kinds of types in linux/btf.h.
const (
	btfInt      = 1
	btfPointer  = 2
	btfArray    = 3
	btfStruct   = 4
	btfFunc     = 12
	btfVar      = 14
	btfDataSec  = 15
	btfKindMask = 0x1f
	btfKindAt   = 24
	btfCount    = 0xffff
)

// rest is the size of what follows the type, by kind: a fixed part, and one for each member.
var rest = [...]struct{ fixed, each int }{
	btfInt: {4, 0}, btfArray: {12, 0}, btfStruct: {0, 12}, 5: {0, 12}, 6: {0, 8}, 13: {0, 8},
	btfVar: {4, 0}, btfDataSec: {0, 12}, 16: {}, 17: {4, 0}, 18: {}, 19: {0, 12},
}

// Linkages of variables and functions in linux/btf.h. The kernel refuses the one of externs.
const (
	btfGlobal = 1
	btfExtern = 2
)

// btfData is the section .BTF. Type numbers don't change, because the section .BTF.ext refers to them.
type btfData struct {
	order          binary.ByteOrder
	types, strings []byte
	count          uint32
}

func (f *file) parseBTF(section []byte) (*btfData, error) {
	var header btfHeader
	if len(section) < btfHeaderSize {
		return nil, problem.Errorf(problem.ObjectUnusual, "its BTF is too short")
	}
	f.read(section, &header)
	if header.Magic != btfMagic || header.Size < btfHeaderSize || uint64(header.Size) > uint64(len(section)) {
		return nil, problem.Errorf(problem.ObjectUnusual, "its BTF has an unknown header")
	}
	body := section[header.Size:]
	types, ok := within(body, uint64(header.TypesAt), uint64(header.Types))
	if !ok {
		return nil, problem.Errorf(problem.ObjectUnusual, "its BTF is too short for its types")
	}
	texts, ok := within(body, uint64(header.StringsAt), uint64(header.Strings))
	if !ok {
		return nil, problem.Errorf(problem.ObjectUnusual, "its BTF is too short for its strings")
	}
	d := &btfData{order: f.order, types: bytes.Clone(types), strings: bytes.Clone(texts)}
	return d, d.each(func(uint32, *btfType, []byte) error { d.count++; return nil })
}

// each calls a function with the number of each type, the type, and what follows it. Changes of either are kept.
func (d *btfData) each(do func(number uint32, t *btfType, more []byte) error) error {
	number := uint32(0)
	for at := 0; at < len(d.types); {
		number++
		if len(d.types)-at < btfTypeSize || number > maxTypes {
			return problem.Errorf(problem.ObjectUnusual, "its BTF ends within type %d", number)
		}
		var t btfType
		_, _ = binary.Decode(d.types[at:], d.order, &t) // fails only for fewer bytes
		kind, count := t.kind(), int(t.Info&btfCount)
		if int(kind) >= len(rest) {
			return problem.Errorf(problem.ObjectUnusual, "its BTF has a type of the unknown kind %d", kind)
		}
		more, ok := within(d.types, uint64(at+btfTypeSize), uint64(rest[kind].fixed+count*rest[kind].each)) //nolint:gosec // positive
		if !ok {
			return problem.Errorf(problem.ObjectUnusual, "its BTF ends within type %d", number)
		}
		if err := do(number, &t, more); err != nil {
			return err
		}
		_, _ = binary.Encode(d.types[at:], d.order, t) // see above
		at += btfTypeSize + len(more)
	}
	return nil
}

func (d *btfData) text(at uint32) string {
	rest := d.strings[min(uint64(len(d.strings)), uint64(at)):]
	name, _ := text(string(rest[:min(len(rest), maxText)]), 0)
	return name
}

// addText returns where a text is among the strings, after adding it.
func (d *btfData) addText(name string) uint32 {
	at := uint32(len(d.strings)) //nolint:gosec // within the file
	d.strings = append(append(d.strings, name...), 0)
	return at
}

// integer returns the number of a type for integers of four bytes.
func (d *btfData) integer() uint32 {
	const size, bits = 4, 32
	var found uint32
	_ = d.each(func(number uint32, t *btfType, _ []byte) error {
		if t.kind() == btfInt && t.Reference == size && found == 0 {
			found = number
		}
		return nil
	}) // all types were read before
	if found == 0 {
		d.count++
		found = d.count
		d.types, _ = binary.Append(d.types, d.order, btfType{d.addText("int"), btfInt << btfKindAt, size})
		d.types, _ = binary.Append(d.types, d.order, uint32(bits))
	}
	return found
}

// define replaces what the kernel refuses, because a linker should have: the declarations of external variables and
// functions, and the sections that list them. So are sections that the kernel can't print. A list of variables and a structure
// have the same size.
func (d *btfData) define(unprintable map[string]bool) error {
	integer := d.integer()
	return d.each(func(_ uint32, t *btfType, more []byte) error {
		switch kind := t.kind(); {
		case kind == btfVar && d.order.Uint32(more) == btfExtern:
			d.order.PutUint32(more, btfGlobal)
			t.Reference = integer
		case kind == btfFunc && t.Info&btfCount == btfExtern:
			t.Info = kind<<btfKindAt | btfGlobal
		case kind == btfDataSec && (d.text(t.Name) == kconfigSection || d.text(t.Name) == ksymsSection || unprintable[d.text(t.Name)]):
			count := t.Info & btfCount
			*t = btfType{Info: btfStruct<<btfKindAt | count, Reference: count * 4}
			for n := range count {
				member := more[n*btfTypeSize:]
				d.order.PutUint32(member, 0)
				d.order.PutUint32(member[4:], integer)
				d.order.PutUint32(member[8:], n*32) //nolint:mnd // bits
			}
		}
		return nil
	})
}

// untype removes the types of the variables in a section.
func (d *btfData) untype(section string) {
	listed := map[uint32]bool{}
	for range 2 { // the list is behind the variables
		_ = d.each(func(n uint32, t *btfType, more []byte) error {
			switch kind := t.kind(); {
			case kind == btfDataSec && d.text(t.Name) == section:
				for entry := range slices.Chunk(more, btfTypeSize) {
					listed[d.order.Uint32(entry)] = true
				}
			case kind == btfVar && listed[n]:
				t.Reference = 0
			}
			return nil
		}) // all types were read before
	}
}

// without returns the entries of a section without those of some variables. The ones that are left have all of its bytes,
// because one of the daemons accepts no others.
func (d *btfData) without(gone map[uint32]bool, entries []byte) []byte {
	var kept []byte
	before := uint32(0) // the bytes of removed variables before the first one that is kept
	for entry := range slices.Chunk(entries, btfTypeSize) {
		removed := gone[d.order.Uint32(entry)]
		if !removed {
			kept = append(kept, entry...)
		}
		if len(kept) == 0 {
			before += d.order.Uint32(entry[8:])
			continue
		}
		at, size := kept[len(kept)-btfTypeSize+4:], kept[len(kept)-btfTypeSize+8:]
		more := before
		if removed {
			more = d.order.Uint32(entry[8:])
		}
		d.order.PutUint32(size, d.order.Uint32(size)+more)
		d.order.PutUint32(at, d.order.Uint32(at)-min(d.order.Uint32(at), before)) // a compiler leaves 0 there
		before = 0
	}
	return kept
}

// defineMaps changes the definitions of maps, by the numbers of their types, and removes maps by name.
func (d *btfData) defineMaps(defined map[uint32]definition, removed map[string]bool) error {
	integer, gone := d.integer(), map[uint32]bool{}
	_ = d.each(func(n uint32, t *btfType, _ []byte) error {
		gone[n] = t.kind() == btfVar && removed[d.text(t.Name)]
		return nil
	}) // all types were read before
	var out, added []byte
	number := func(n uint32) uint32 { // libbpf's __uint: a pointer to an array
		added, _ = binary.Append(added, d.order, []uint32{0, btfArray << btfKindAt, 0, integer, integer, n, 0, btfPointer << btfKindAt, d.count + 1})
		d.count += 2
		return d.count
	}
	err := d.each(func(n uint32, t *btfType, more []byte) error {
		kind, before := t.kind(), len(more)
		definition, changed := defined[n]
		switch {
		case kind == btfStruct && changed:
			more = d.members(&definition, more, number)
		case kind == btfDataSec && d.text(t.Name) == mapsSection:
			if more = d.without(gone, more); len(more) == 0 {
				*t = btfType{Info: btfStruct << btfKindAt}
			}
		}
		if changed || len(more) != before {
			t.Info = t.Info&^btfCount | uint32(len(more)/btfTypeSize) //nolint:gosec // not more than before, or a few
		}
		out, _ = binary.Append(out, d.order, *t)
		out = append(out, more...)
		return nil
	})
	d.types = append(out, added...)
	return err
}

// members returns the members of a structure that defines a map. Those for the types of keys and values stay. All have
// the same offset, because the size of the structure stays.
func (d *btfData) members(definition *definition, before []byte, number func(uint32) uint32) []byte {
	var out []byte
	add := func(name string, reference uint32) {
		out, _ = binary.Append(out, d.order, []uint32{d.addText(name), reference, 0})
	}
	typed := map[string]bool{"key": definition.key != nil, "value": definition.value != nil}
	for member := range slices.Chunk(before, btfTypeSize) {
		if name := d.text(d.order.Uint32(member)); typed[name] {
			add(name, d.order.Uint32(member[4:]))
		}
	}
	for _, m := range []struct {
		name   string
		number uint32
		typed  bool
	}{
		{"type", uint32(definition.kind), false},
		{"key_size", definition.keySize, typed["key"]},
		{"value_size", definition.valueSize, typed["value"]},
		{"max_entries", definition.entries, false},
		{"map_flags", definition.flags, false},
		{"pinning", definition.pinning, false},
	} {
		if m.number != 0 && !m.typed {
			add(m.name, number(m.number))
		}
	}
	return out
}

// bytes returns the section.
func (d *btfData) bytes() []byte {
	types, texts := uint32(len(d.types)), uint32(len(d.strings)) //nolint:gosec // within the file
	out, _ := binary.Append(nil, d.order, btfHeader{Magic: btfMagic, Version: 1, Size: btfHeaderSize, Types: types, StringsAt: types, Strings: texts})
	return append(append(out, d.types...), d.strings...)
}

// btfExtHeaderSize is the size of struct btf_ext_header in libbpf, with the part about relocations.
const btfExtHeaderSize = 32

// renameInfos changes the names of sections in the section .BTF.ext, and removes its relocations.
func (f *file) renameInfos(section []byte, types *btfData, names map[string]string) ([]byte, error) {
	const shortHeader = 24
	if len(section) < shortHeader {
		return nil, problem.Errorf(problem.ObjectUnusual, "its .BTF.ext is too short")
	}
	out := bytes.Clone(section)
	size := f.order.Uint32(out[4:])
	if size < shortHeader || size > shortHeader && size < btfExtHeaderSize || uint64(size) > uint64(len(out)) {
		return nil, problem.Errorf(problem.ObjectUnusual, "its .BTF.ext has an unknown header")
	}
	if size >= btfExtHeaderSize {
		f.order.PutUint32(out[28:], 0) // Relos
	}
	at := map[string]uint32{}
	for field := range 2 { // functions and lines
		start, length := f.order.Uint32(out[8+8*field:]), f.order.Uint32(out[12+8*field:])
		infos, ok := within(out[size:], uint64(start), uint64(length))
		if !ok {
			return nil, problem.Errorf(problem.ObjectUnusual, "its .BTF.ext is too short")
		}
		if err := f.renameIn(infos, types, names, at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f *file) renameIn(infos []byte, types *btfData, names map[string]string, at map[string]uint32) error {
	const headerSize = 8
	if len(infos) == 0 {
		return nil
	}
	if len(infos) < 4 {
		return problem.Errorf(problem.ObjectUnusual, "its .BTF.ext is too short")
	}
	record := uint64(f.order.Uint32(infos))
	for infos = infos[4:]; len(infos) > 0; {
		if len(infos) < headerSize {
			return problem.Errorf(problem.ObjectUnusual, "its .BTF.ext is too short")
		}
		if name, renamed := names[types.text(f.order.Uint32(infos))]; renamed {
			if _, added := at[name]; !added {
				at[name] = types.addText(name)
			}
			f.order.PutUint32(infos, at[name])
		}
		_, ok := within(infos, headerSize, record*uint64(f.order.Uint32(infos[4:])))
		if !ok || record > maxUnpacked {
			return problem.Errorf(problem.ObjectUnusual, "its .BTF.ext is too short")
		}
		infos = infos[headerSize+record*uint64(f.order.Uint32(infos[4:])):]
	}
	return nil
}
