// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package object reads eBPF object files, which can come from an untrusted source: their
// programs, maps, and global variables, and which functions of the kernel they call. It
// also removes what isn't needed to load them.
package object

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/maptype"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Object describes the content of an object file.
type Object struct {
	// ByteOrder is "little" or "big".
	ByteOrder string     `json:"byteOrder"`
	Programs  []Program  `json:"programs"`
	Maps      []Map      `json:"maps"`
	Globals   []Variable `json:"globals"`
	// License is the license that the object declares. Without one, the daemon's loader
	// declares GPL.
	License string `json:"license,omitempty"`
	// BTF means that the object describes its types.
	BTF bool `json:"btf"`
	// Helpers are the functions of the kernel that the code calls, and MapTypes the types
	// of all maps, including those for global data. Both have the names of
	// reader.Object.
	Helpers  []string `json:"helpers,omitempty"`
	MapTypes []string `json:"mapTypes,omitempty"`
	// Needs is what the programs need of a kernel, except for helpers and types of maps.
	Needs []string `json:"needs,omitempty"`
	// Unknown is the reason why Maps, Globals, and MapTypes aren't known.
	Unknown string `json:"unknown,omitempty"`
}

// Program is a function that can be loaded as a program.
type Program struct {
	Name string `json:"name"`
	// Type is the type that results from the section, with bpfman's name, such as tc for
	// both TC and TCX. For a section that no kind of bpfman corresponds to, it is the
	// prefix of the section's name.
	Type    string `json:"type"`
	Section string `json:"section"`
	// Unsupported is why bpfman can't load the function, with its version 0.6 of the daemon. It is
	// empty if it can.
	Unsupported string `json:"unsupported,omitempty"`
	// Since says which version of the daemon can load such programs, if bpfman has no kind for them.
	Since string `json:"since,omitempty"`
	// Needs is what the function needs of a kernel, except for helpers and types of maps. Object.Needs has the names.
	Needs []string `json:"needs,omitempty"`
}

// Map is a map that the programs define.
type Map struct {
	Name string `json:"name"`
	// Type is the type, with the names of MapTypes. Number is the kernel's number of the type.
	Type   string `json:"type"`
	Number uint32 `json:"-"`
	// KeySize and ValueSize are in bytes. MaxEntries can also be a size in bytes, for
	// example for ring buffers. Zero means that the loader decides.
	KeySize    uint32 `json:"keySize"`
	ValueSize  uint32 `json:"valueSize"`
	MaxEntries uint32 `json:"maxEntries"`
	// PinnedByName means that the map is pinned at /sys/fs/bpf/<name>, once for the whole
	// node.
	PinnedByName bool `json:"pinnedByName,omitempty"`
	// Filled means that the object has content for the map, such as the programs of tail calls.
	Filled bool `json:"filled,omitempty"`
	// Unprintable means that an element has so many numbers that nodes create the map without types, so it can't be read as
	// text.
	Unprintable bool `json:"unprintable,omitempty"`
}

// Values of Object.ByteOrder.
const (
	littleEndian = "little"
	bigEndian    = "big"
)

// Read reads an object file. An error describes the file, and continues a sentence about
// it. If only the maps and variables can't be read, Read sets Object.Unknown.
func Read(content []byte) (*Object, error) {
	f, stripped, o, err := read(content)
	if err != nil {
		return nil, err
	}
	o.judge(f, stripped)
	return o, nil
}

// read is Read without what judge sets, which only people read.
func read(content []byte) (*file, []byte, *Object, error) {
	f, err := parse(content)
	if err != nil {
		return nil, nil, nil, err
	}
	o := &Object{ByteOrder: littleEndian, Maps: []Map{}, Globals: []Variable{}, License: f.license(), BTF: f.has(".BTF"), Helpers: f.calls()}
	if f.order == binary.BigEndian {
		o.ByteOrder = bigEndian
	}
	if o.Programs, err = f.functions(); err != nil {
		return nil, nil, nil, err
	}
	slices.SortFunc(o.Programs, func(a, b Program) int { return cmp.Compare(a.Name, b.Name) })
	stripped, err := f.strip()
	if err != nil {
		return nil, nil, nil, err
	}
	readable, err := f.readable()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := o.declared(f, stripped, readable); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		o.Maps, o.Globals, o.MapTypes, o.Unknown = []Map{}, []Variable{}, nil, plain.Text(first)
	}
	return f, stripped, o, nil
}

// judge sets what the programs need of a kernel, and which of them can't be loaded on any.
func (o *Object) judge(f *file, stripped []byte) {
	var err error
	defer malformed(&err) // then the maps can't be read either
	a := &adaption{file: f, unusable: map[string]string{}, problems: map[string]problem.Reason{}, dropped: map[place]bool{}}
	err = a.readTypes(stripped)
	o.Needs = a.needs(o.Programs)
	if err == nil {
		_, _, err = a.refuseMaps()
	}
	a.link()
	for i := range o.Programs {
		p := &o.Programs[i]
		p.Unsupported = cmp.Or(p.Unsupported, a.unusable[p.Name])
	}
}

// structOpsSection has variables that the library refuses.
const structOpsSection = ".struct_ops"

// readable returns the object in a form in which the library accepts maps with weak symbols, as those in libbpf's
// usdt.bpf.h, and variables of the kernel that have a type. It has no variables of struct_ops.
func (f *file) readable() ([]byte, error) {
	a := &adaption{file: &file{content: f.content, order: f.order, header: f.header, sections: slices.Clone(f.sections), symbols: f.symbols, table: f.table}}
	for i := range a.sections {
		s := &a.sections[i]
		switch {
		case elf.SectionType(s.Type) == elf.SHT_SYMTAB:
			s.data = bytes.Clone(s.data)
		case s.name == structOpsSection || s.relocates() && int(s.Info) < len(f.sections) && f.sections[s.Info].name == structOpsSection:
			*s = section{}
		case s.name == ".BTF":
			types, err := f.parseBTF(s.data)
			if err != nil {
				break // the library says so
			}
			types.untype(ksymsSection)
			s.change(types.bytes())
		}
	}
	for n, y := range f.symbols {
		if int(y.Shndx) < len(f.sections) && f.sections[y.Shndx].maps() && isWeak(y) {
			y.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.ST_TYPE(y.Info))
			a.setSymbol(n, y.Sym64)
		}
	}
	return a.strip()
}

// declared reads the maps and global variables. Their descriptions are the library's, and the types of maps, which policies
// decide on, also include those that the daemon's loader finds.
func (o *Object) declared(f *file, stripped, readable []byte) (err error) {
	defer malformed(&err)
	types, pinned, err := f.daemonsMaps(stripped)
	if err != nil {
		return err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(readable))
	if err != nil {
		return err //nolint:wrapcheck // there is nothing to add
	}
	if len(spec.Maps) > maxFunctions || len(spec.Variables) > maxFunctions {
		return problem.Errorf(problem.TooMuchToRead, "it has more than %d maps or variables", maxFunctions)
	}
	var printed values
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		for inner := m; inner != nil; inner = inner.InnerMap {
			types[mapType(inner.Type)] = true
		}
		// The compiler's data sections are also maps.
		if !strings.HasPrefix(name, ".") {
			o.Maps = append(o.Maps, Map{name, mapType(m.Type), uint32(m.Type), m.KeySize, m.ValueSize, m.MaxEntries, m.Pinning == ebpf.PinByName || pinned[name], len(m.Contents) > 0, printed.unprintable(m.Key, m.Value)})
		}
		if plain.Truncate(name, maxName) != name {
			return problem.Errorf(problem.ObjectUnusual, "the name of its map %s has more than %d bytes, or isn't printable", plain.Quote(name), maxName)
		}
	}
	for name, v := range spec.Variables {
		o.Globals = append(o.Globals, Variable{name, typeName(v.Type), v.SectionName, uint32(len(v.Value)), v.Value, describe(v.Type)}) //nolint:gosec // within the file
	}
	slices.SortFunc(o.Globals, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	o.MapTypes = slices.Sorted(maps.Keys(types))
	return nil
}

// daemonsMaps returns the types of the maps that the daemon's loader creates, and the names of those that it pins by name.
func (f *file) daemonsMaps(stripped []byte) (types, pinned map[string]bool, err error) {
	a := &adaption{file: f}
	if err := a.readTypes(stripped); err != nil {
		return nil, nil, err
	}
	defined, err := a.definitions()
	if err != nil {
		return nil, nil, err
	}
	types, pinned = map[string]bool{}, map[string]bool{}
	for _, d := range defined {
		if !d.undefined {
			types[mapType(d.kind)] = true
			pinned[d.name] = pinned[d.name] || d.pinning == uint32(ebpf.PinByName)
		}
	}
	for i := range f.sections {
		if s := &f.sections[i]; s.variables() && s.Size > 0 {
			types[mapType(ebpf.Array)] = true
		}
	}
	return types, pinned, nil
}

// malformed, when deferred, returns a panic as an error. Parsers that are libraries can panic on malicious input.
func malformed(err *error) {
	if r := recover(); r != nil {
		*err = problem.Errorf(problem.ObjectUnusual, "it is malformed: %v", r)
	}
}

// mapType returns the name that the kernel and bpftool use for a type.
func mapType(t ebpf.MapType) string {
	if name, known := maptype.Name(uint32(t)); known {
		return name
	}
	return "unknown#" + strconv.FormatUint(uint64(t), 10)
}

// Description is what the agent needs to know about an image's object.
type Description struct {
	// Object is the object without its debug sections, and Adapted what the daemon loads.
	Object, Adapted []byte
	Facts           reader.Object
}

// Describe describes an image's object, and adapts it to a kernel. The object must have this machine's byte order.
func Describe(content []byte, kernel *Kernel) (*Description, error) {
	f, stripped, o, err := read(content)
	if err != nil {
		return nil, err
	}
	machine := littleEndian
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		machine = bigEndian
	}
	if o.ByteOrder != machine {
		return nil, problem.Errorf(problem.ByteOrder, "it is %s-endian, but %s isn't", o.ByteOrder, runtime.GOARCH)
	}
	adapted, err := Adapt(stripped, kernel)
	if err != nil {
		return nil, err
	}
	facts := reader.Object{
		Digest: digest(stripped), Size: int64(len(stripped)), Helpers: o.Helpers, MapTypes: o.MapTypes, Shared: f.shared(), License: o.License, Unknown: o.Unknown,
		Adapted: reader.Adapted{Digest: digest(adapted.Content), Size: int64(len(adapted.Content)), Format: reader.Format},
	}
	if adapted.ForKernel {
		facts.Adapted.Kernel = kernel.ID
	}
	for _, p := range o.Programs {
		facts.Functions = append(facts.Functions, reader.Function{Name: p.Name, Section: p.Section, Unusable: adapted.Unusable[p.Name], Problem: adapted.Problems[p.Name]})
	}
	for _, m := range o.Maps {
		facts.Maps = append(facts.Maps, reader.Map{Name: m.Name, Type: m.Number, KeySize: m.KeySize, ValueSize: m.ValueSize, Pinned: m.PinnedByName})
	}
	// More, or longer names, are those of an object that is meant to exceed limits.
	for _, v := range o.Globals[:min(len(o.Globals), maxVariables)] {
		if len(v.Name) <= maxName {
			facts.Variables = append(facts.Variables, v.Fact())
		}
	}
	return &Description{stripped, adapted.Content, facts}, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
