// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Adapted is an object in the form that the daemon's loader (aya-obj 0.2.1 in bpfman v0.6.0) accepts.
type Adapted struct {
	Content []byte
	// ForKernel means that the content depends on the kernel.
	ForKernel bool
	// Unusable has the functions that can't be loaded, each with the reason, and Problems what kind of problem that is.
	Unusable map[string]string
	Problems map[string]problem.Reason
}

// Adapt does for an object what libbpf does and the daemon's loader doesn't, without changing what its programs do:
//
//   - It applies CO-RE relocations, and connects external variables and functions (.kconfig and .ksyms) with the kernel.
//   - It gives maps definitions that the loader and the kernel accept, and removes those that it can't create.
//   - It gives sections names that the loader recognizes, and removes those with programs of types that bpfman doesn't
//     have. The loader would refuse the whole object because of them.
//   - It removes debug sections, as Strip does.
//
// A program for which that fails is in Adapted.Unusable, and doesn't prevent the others from being loaded. An error
// describes the object, and continues a sentence about it.
func Adapt(content []byte, kernel *Kernel) (adapted *Adapted, err error) {
	defer malformed(&err)
	f, err := parse(content)
	if err != nil {
		return nil, err
	}
	programs, err := f.functions()
	if err != nil {
		return nil, err
	}
	calls := f.calls()
	// Sections are changed in place, and can overlap in the content.
	for i := range f.sections {
		f.sections[i].data = bytes.Clone(f.sections[i].data)
	}
	a := &adaption{file: f, kernel: kernel, unusable: map[string]string{}, problems: map[string]problem.Reason{}, names: map[string]string{}, removed: map[string]bool{}, dropped: map[place]bool{}, defined: map[uint32]definition{}}
	for _, p := range programs {
		if err := unsupported(p.Section, p.Type); err != nil {
			a.unusable[p.Name], a.problems[p.Name] = err.Error(), problem.Of(err)
		}
	}
	if err := a.readTypes(content); err != nil {
		return nil, err
	}
	if err := a.fitMaps(); err != nil {
		return nil, err
	}
	a.remove()
	a.endLicense()
	a.fillGaps()
	a.relocate()
	a.connect()
	a.link()
	a.drop()
	a.rename()
	if err := a.writeTypes(); err != nil {
		return nil, err
	}
	called := f.calls()
	stripped, err := f.strip()
	if err != nil {
		return nil, err
	}
	// Policies know what the image's object calls.
	if added := beyond(calls, called); len(added) > 0 {
		return nil, problem.Errorf(problem.ObjectUnusual, "its relocations would make it call %s", plain.Quote(strings.Join(added, ", ")))
	}
	return &Adapted{stripped, a.forKernel, a.unusable, a.problems}, nil
}

// adaption is an Adapt in progress. It changes the sections of the file.
type adaption struct {
	*file

	kernel    *Kernel
	forKernel bool
	unusable  map[string]string
	problems  map[string]problem.Reason
	// names has the new names of sections by their names in the object.
	names map[string]string
	// removed has the names of the maps that the daemon can't create, and defined the changed definitions of others by
	// the numbers of their types.
	removed map[string]bool
	defined map[uint32]definition
	// dropped are the instructions whose relocations the loader must not see.
	dropped map[place]bool

	// graph is set by the first failure.
	graph *callGraph

	// types and infos are the object's sections .BTF and .BTF.ext. They are nil if the object has none.
	types *btf.Spec
	infos *btf.ExtInfos
	// external has the variables and functions that the object expects elsewhere.
	external map[string]external
	// printed has the sizes of the types when the kernel prints them.
	printed values
}

// readTypes reads the object's types.
func (a *adaption) readTypes(content []byte) error {
	if !a.has(".BTF") {
		return nil
	}
	var err error
	if a.has(".BTF.ext") {
		a.types, a.infos, err = btf.LoadSpecAndExtInfosFromReader(bytes.NewReader(content))
	} else {
		a.types, err = btf.LoadSpecFromReader(bytes.NewReader(content))
	}
	if err != nil {
		return problem.Errorf(problem.ObjectUnusual, "its types can't be read: %s", plain.Text(err.Error()))
	}
	index, _ := a.section(".BTF")
	// As part of a file, the library refuses variables of the kernel that have a type.
	raw, err := btf.LoadSpecFromReader(bytes.NewReader(a.sections[index].data))
	if err != nil {
		return problem.Errorf(problem.ObjectUnusual, "its types can't be read: %s", plain.Text(err.Error()))
	}
	a.external, err = externals(raw)
	return err
}

// change replaces the content of a section.
func (s *section) change(content []byte) { s.data, s.Size = content, uint64(len(content)) }

// fillGaps makes functions of code in .text that belongs to none, because the loader refuses such an object. Linkers leave
// it where one function replaces another.
func (a *adaption) fillGaps() {
	ends := make([]uint64, len(a.sections))
	fill := func(section int, to uint64) {
		if s := &a.sections[section]; s.code() && !s.programs() && ends[section] < to {
			from := ends[section]
			a.addSymbol(elf.Sym64{Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: uint16(section), Value: from, Size: to - from}) //nolint:gosec // an index
		}
	}
	for _, f := range a.code {
		fill(f.section, f.offset)
		ends[f.section] = f.end
	}
	for i := range a.sections {
		fill(i, uint64(len(a.sections[i].data)))
	}
}

// endLicense has the license end with the section. The loader refuses another form, and an empty one.
func (a *adaption) endLicense() {
	const none = "none" // to the kernel, as any license that isn't compatible with the GPL
	if index, ok := a.section("license"); ok {
		declared, _, _ := bytes.Cut(a.sections[index].data, []byte{0})
		a.sections[index].change(fmt.Appendf(nil, "%s\x00", cmp.Or(string(declared), none)))
	}
}

// remove removes the sections with programs of types that bpfman doesn't have, unless others use them, and those without
// content of which the loader would make a map.
func (a *adaption) remove() {
	kept := a.used()
	removed := make([]bool, len(a.sections))
	for i := range a.sections {
		s := &a.sections[i]
		removed[i] = s.programs() && !kept[i] || s.variables() && s.Size == 0
	}
	for i := range a.sections {
		s := &a.sections[i]
		if removed[i] || s.relocates() && int(s.Info) < len(removed) && removed[s.Info] {
			*s = section{}
		}
	}
}

// used reports for each section whether programs of types that bpfman has are in it, or refer to it.
func (a *adaption) used() []bool {
	used := make([]bool, len(a.sections))
	var next []int
	use := func(index int) {
		if index < len(used) && !used[index] {
			used[index] = true
			next = append(next, index)
		}
	}
	for i := range a.sections {
		if s := &a.sections[i]; s.code() && (!s.programs() || loaderName(s.name) != "") {
			use(i)
		}
	}
	for len(next) > 0 {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if a.sections[i].code() {
			for _, r := range a.relocations(i) {
				use(int(a.symbols[r.symbol].Shndx))
			}
		}
	}
	return used
}

// rename gives sections of programs the names that the loader recognizes. They stay unique, because the types in
// .BTF.ext are found by name.
func (a *adaption) rename() {
	taken := map[string]bool{}
	for _, s := range a.sections {
		taken[s.name] = true
	}
	for i := range a.sections {
		s := &a.sections[i]
		if !s.programs() {
			continue
		}
		name := loaderName(s.name)
		if name == "" {
			name = unusedPrefix + s.name
		}
		if name == s.name {
			continue
		}
		if taken[name] {
			// The daemon loads XDP programs with the type of its dispatcher, no matter which section they have.
			name = packetPrefix + s.name
		}
		taken[name] = true
		a.names[s.name] = name
		s.name = name
		s.Name = a.addName(name)
	}
}

// addName adds a name to the table of the names of sections.
func (f *file) addName(name string) uint32 {
	table := &f.sections[f.header.Shstrndx]
	at := len(table.data)
	table.change(append(table.data, name+"\x00"...))
	return uint32(at) //nolint:gosec // within the file
}

// add adds a section, and returns its index.
func (f *file) add(name string, header elf.Section64, content []byte) uint16 {
	header.Name, header.Size = f.addName(name), uint64(len(content))
	f.sections = append(f.sections, section{Section64: header, name: name, data: content})
	f.header.Shnum++
	return f.header.Shnum - 1
}

// writeTypes updates the sections .BTF and .BTF.ext.
func (a *adaption) writeTypes() error {
	index, ok := a.section(".BTF")
	if !ok {
		return nil
	}
	types, err := a.parseBTF(a.sections[index].data)
	if err != nil {
		return err
	}
	if err := types.define(a.printed.unprintableVariables(a.types)); err != nil {
		return err
	}
	if err := types.defineMaps(a.defined, a.removed); err != nil {
		return err
	}
	if ext, ok := a.section(".BTF.ext"); ok {
		infos, err := a.renameInfos(a.sections[ext].data, types, a.names)
		if err != nil {
			return err
		}
		a.sections[ext].change(infos)
	}
	a.sections[index].change(types.bytes())
	return nil
}

// fail marks the programs that contain the instruction at an offset of a section, or call the function that does.
func (a *adaption) fail(section int, offset uint64, reason error) {
	if a.graph == nil {
		a.graph = a.callGraph()
	}
	a.graph.fail(place{section, offset}, func(f function) {
		for _, program := range f.programs {
			if a.unusable[program] == "" {
				a.unusable[program], a.problems[program] = plain.Text(reason.Error()), problem.Of(reason)
			}
		}
	})
}

// programIn returns a program in a section, as far as that determines it.
func programIn(section, name string) Program {
	p := Program{Name: name, Type: programType(section), Section: section}
	p.Since = since(section, p.Type)
	if err := unsupported(section, p.Type); err != nil {
		p.Unsupported = err.Error()
	}
	return p
}

// unsupported returns why bpfman can't load programs in a section, or nothing if it can.
func unsupported(section, kind string) error {
	if loaderName(section) != "" {
		return nil
	}
	kind = strings.TrimSuffix(kind, ".s")
	if kind == "xdp" {
		kind = section // programs in maps
	}
	return problem.Errorf(problem.FunctionOfNoKind, "it is in section %s, and bpfman has no kind for programs of type %s", plain.Quote(section), plain.Quote(kind))
}
