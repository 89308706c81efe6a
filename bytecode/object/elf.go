// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Limits on what is accepted, no matter which sizes a file's headers claim.
const (
	maxSections = 4096
	// maxUnpacked is the limit for the size of all sections together, in bytes. It
	// includes sections that aren't stored (.bss).
	maxUnpacked  = 2 * reader.MaxObject
	maxFunctions = 4096
	// maxCode is the limit for the number of functions, including those that only others call.
	maxCode = 1 << 16
	// maxName is the maximum length of a function's name, in bytes. The kernel keeps 15.
	maxName = 256
	// maxText is the maximum length of any other name, in bytes.
	maxText      = 16 << 10
	maxAlignment = 4096
)

// Sizes in ELF64, in bytes.
const (
	headerSize      = 64
	sectionSize     = 64
	symbolSize      = 24
	instructionSize = 8
	relSize         = 16
)

// file is an ELF file whose headers are valid: all sections are within the file.
type file struct {
	content  []byte
	order    binary.ByteOrder
	header   elf.Header64
	sections []section
	symbols  []symbol
	// table is the index of the section with the symbols.
	table int
	// code has all functions by place, after functions was called.
	code []function
	// relocated has the relocations of all sections, after relocations was called.
	relocated map[int][]relocation
}

type section struct {
	elf.Section64
	name string
	data []byte
}

type symbol struct {
	elf.Sym64
	name string
}

// parse reads the headers, sections, and symbols of an object, and refuses what other
// parsers could read differently.
func parse(content []byte) (*file, error) {
	if len(content) > reader.MaxObject {
		return nil, problem.Errorf(problem.ObjectTooLarge, "it has more than %d MiB", reader.MaxObject>>20)
	}
	if len(content) < headerSize || string(content[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return nil, problem.Errorf(problem.NotAnObject, "it isn't an ELF file, such as `clang -target bpf -g -O2 -c` writes")
	}
	f := &file{content: content, order: binary.LittleEndian}
	switch data := elf.Data(content[elf.EI_DATA]); {
	case elf.Class(content[elf.EI_CLASS]) != elf.ELFCLASS64:
		return nil, problem.Errorf(problem.NotAnObject, "it isn't a 64-bit ELF file")
	case data == elf.ELFDATA2MSB:
		f.order = binary.BigEndian
	case data != elf.ELFDATA2LSB:
		return nil, problem.Errorf(problem.ObjectUnusual, "its byte order is unknown")
	}
	f.read(content, &f.header)
	switch h := f.header; {
	case elf.Machine(h.Machine) != elf.EM_BPF || elf.Type(h.Type) != elf.ET_REL:
		return nil, problem.Errorf(problem.NotAnObject, "it isn't a relocatable object for BPF, but %s for %s", elf.Type(h.Type), elf.Machine(h.Machine))
	case h.Phnum != 0 || h.Ehsize != headerSize || h.Shentsize != sectionSize:
		return nil, problem.Errorf(problem.ObjectUnusual, "its ELF header is unusual")
	case h.Shnum == 0 || h.Shnum > maxSections:
		return nil, problem.Errorf(problem.ObjectUnusual, "it has %d sections", h.Shnum)
	}
	if err := f.readSections(); err != nil {
		return nil, err
	}
	if err := f.unique(); err != nil {
		return nil, err
	}
	return f, f.readSymbols()
}

// read decodes a structure from bytes that are long enough.
func (f *file) read(from []byte, to any) {
	_, _ = binary.Decode(from, f.order, to) // fails only for fewer bytes
}

func (f *file) readSections() error {
	headers, ok := within(f.content, f.header.Shoff, uint64(f.header.Shnum)*sectionSize)
	if !ok {
		return problem.Errorf(problem.ObjectUnusual, "its section headers are outside of the file")
	}
	f.sections = make([]section, f.header.Shnum)
	var unpacked uint64
	for i := range f.sections {
		s := &f.sections[i]
		f.read(headers[i*sectionSize:], &s.Section64)
		if elf.SectionType(s.Type) == elf.SHT_NULL || i == 0 {
			*s = section{}
			continue
		}
		if s.Size > maxUnpacked || unpacked+s.Size > maxUnpacked {
			return problem.Errorf(problem.ObjectTooLarge, "its sections have more than %d MiB", maxUnpacked>>20)
		}
		unpacked += s.Size
		if err := f.load(s); err != nil {
			return fmt.Errorf("its section %d %w", i, err)
		}
	}
	return f.nameSections()
}

// load sets the content of a section, and checks its header.
func (f *file) load(s *section) error {
	if elf.SectionType(s.Type) != elf.SHT_NOBITS {
		var ok bool
		if s.data, ok = within(f.content, s.Off, s.Size); !ok {
			return problem.Errorf(problem.ObjectUnusual, "is outside of the file")
		}
	}
	if s.Addralign > maxAlignment || bits.OnesCount64(s.Addralign) > 1 {
		return problem.Errorf(problem.ObjectUnusual, "has the alignment %d", s.Addralign)
	}
	if int(s.Link) >= len(f.sections) {
		return problem.Errorf(problem.ObjectUnusual, "is linked to a section that doesn't exist")
	}
	return nil
}

func (f *file) nameSections() error {
	if int(f.header.Shstrndx) >= len(f.sections) {
		return problem.Errorf(problem.ObjectUnusual, "it has no names of sections")
	}
	names, ok := f.sections[f.header.Shstrndx].strings()
	if !ok {
		return problem.Errorf(problem.ObjectUnusual, "it has no names of sections")
	}
	for i := range f.sections {
		s := &f.sections[i]
		var ok bool
		if s.name, ok = text(names, s.Name); !ok && i > 0 {
			return problem.Errorf(problem.ObjectUnusual, "its section %d has no name", i)
		}
	}
	return nil
}

// strings returns the content of a string table. It has no name at 0, which the headers of removed sections refer to.
func (s *section) strings() (string, bool) {
	return string(s.data), elf.SectionType(s.Type) == elf.SHT_STRTAB && len(s.data) > 0 && s.data[0] == 0
}

func within(content []byte, offset, size uint64) ([]byte, bool) {
	length := uint64(len(content))
	if offset > length || size > length-offset {
		return nil, false
	}
	return content[offset : offset+size : offset+size], true
}

// text returns the text at an offset of a string table, without copying it. The texts of a table can overlap.
func text(table string, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(table)) {
		return "", false
	}
	name, _, ended := strings.Cut(table[at:min(uint64(len(table)), uint64(at)+maxText)], "\x00")
	return name, ended
}

// unique refuses sections that occur twice, and those that some loaders recognize and others don't. Loaders differ in which
// one of several they use. Only maps can be in several sections, if their names differ.
func (f *file) unique() error {
	seen := map[string]bool{}
	for _, s := range f.sections {
		key := ""
		for _, prefix := range []string{".BTF", ".BTF.ext", ".maps", "maps", "license", "version"} {
			if s.name == prefix || !strings.HasPrefix(prefix, ".B") && strings.HasPrefix(s.name, prefix) {
				key = prefix
			}
		}
		kind := elf.SectionType(s.Type)
		if kind == elf.SHT_SYMTAB {
			key = "a symbol table"
		}
		switch {
		case key == ".maps" && s.name != ".maps":
			return problem.Errorf(problem.ObjectUnusual, "the name of its section %s isn't .maps", plain.Quote(s.name))
		case key != "" && key != "maps" && seen[key]:
			return problem.Errorf(problem.ObjectUnusual, "it has two sections for %s", key)
		case s.flags()&elf.SHF_COMPRESSED != 0 && !debugName(s.name):
			return problem.Errorf(problem.SectionCompressed, "its section %s is compressed", plain.Quote(s.name))
		case kind == elf.SHT_DYNSYM || kind == elf.SHT_SYMTAB_SHNDX || kind == elf.SHT_RELA: //nolint:misspell // its name in ELF
			return problem.Errorf(problem.ObjectUnusual, "it has a section of the unusual type %s", kind)
		case s.code() && (s.Addr != 0 || len(s.data)%instructionSize != 0):
			return problem.Errorf(problem.ObjectUnusual, "its section %s isn't a sequence of instructions", plain.Quote(s.name))
		}
		seen[key] = true
	}
	if !seen["a symbol table"] {
		return problem.Errorf(problem.ObjectUnusual, "it has no symbol table")
	}
	return f.checkRelocations()
}

// checkRelocations refuses relocations that the daemon's loader leaves out.
func (f *file) checkRelocations() error {
	for _, s := range f.sections {
		if s.relocates() && (elf.SectionType(f.sections[s.Link].Type) != elf.SHT_SYMTAB || len(s.data)%relSize != 0) {
			return problem.Errorf(problem.ObjectUnusual, "its relocations in section %s are unusual", plain.Quote(s.name))
		}
	}
	return nil
}

// flags returns the flags that ELF defines, which have 32 bits.
func (s *section) flags() elf.SectionFlag {
	return elf.SectionFlag(s.Flags) //nolint:gosec // see above
}

// code reports whether a section contains instructions for the daemon's loader, either
// of programs or of functions that they call.
func (s *section) code() bool { return s.programs() || strings.HasPrefix(s.name, ".text") }

// maps reports whether the daemon's loader reads maps from the section. Each has the name of a symbol.
func (s *section) maps() bool {
	return strings.HasPrefix(s.name, "maps") || strings.HasPrefix(s.name, ".maps")
}

// mapName matches what the kernel accepts in the name of a map (bpf_obj_name_cpy), in all of it. The daemon also uses
// the name as a path: it opens and pins the map there.
var mapName = regexp.MustCompile(`^[0-9A-Za-z_.]*[0-9A-Za-z_][0-9A-Za-z_.]*$`)

// programs reports whether the daemon's loader (aya-obj 0.2.1 in bpfman v0.6.0) reads
// programs from the section: EbpfSectionKind::Program.
func (s *section) programs() bool {
	for _, other := range []string{"license", "version", "maps", ".maps", ".text", ".bss", ".data", ".rodata"} {
		if strings.HasPrefix(s.name, other) {
			return false
		}
	}
	return elf.SectionType(s.Type) == elf.SHT_PROGBITS && s.flags()&elf.SHF_EXECINSTR != 0 && s.Size > 0 && s.name != ".BTF" && s.name != ".BTF.ext"
}

func (f *file) readSymbols() error {
	seen := map[string]bool{}
	for n, s := range f.sections {
		if elf.SectionType(s.Type) != elf.SHT_SYMTAB {
			continue
		}
		f.table = n
		names, ok := f.sections[s.Link].strings()
		if !ok || s.Entsize != symbolSize || len(s.data)%symbolSize != 0 {
			return problem.Errorf(problem.ObjectUnusual, "its symbol table is unusual")
		}
		f.symbols = make([]symbol, len(s.data)/symbolSize)
		for i := range f.symbols {
			y := &f.symbols[i]
			f.read(s.data[i*symbolSize:], &y.Sym64)
			var ok bool
			if y.name, ok = text(names, y.Name); !ok {
				return problem.Errorf(problem.ObjectUnusual, "its symbol %d has no name", i)
			}
			switch isMap := int(y.Shndx) < len(f.sections) && f.sections[y.Shndx].maps() && y.name != ""; {
			case isMap && !mapName.MatchString(y.name):
				return problem.Errorf(problem.ObjectUnusual, "the name of its map %s isn't one that the kernel accepts", plain.Quote(y.name))
			case isMap && elf.ST_TYPE(y.Info) != elf.STT_OBJECT && elf.ST_TYPE(y.Info) != elf.STT_NOTYPE:
				return problem.Errorf(problem.ObjectUnusual, "its map %s isn't a variable", plain.Quote(y.name))
			case isMap && seen[y.name]:
				return problem.Errorf(problem.ObjectUnusual, "it has two maps %s", plain.Quote(y.name))
			case isMap:
				seen[y.name] = true
			}
		}
	}
	return nil
}

// functions returns the functions that the daemon's loader can load as programs. It
// includes those with a local symbol.
func (f *file) functions() ([]Program, error) {
	var found []Program
	var code []function
	seen := map[string]bool{}
	for _, y := range f.symbols {
		s := f.codeOf(y)
		if s == nil {
			continue
		}
		// The loader would decode other instructions from an offset within one.
		if _, ok := within(s.data, y.Value, y.Size); !ok || y.Value%instructionSize != 0 || y.Size%instructionSize != 0 {
			return nil, problem.Errorf(problem.ObjectUnusual, "its function %s isn't a sequence of instructions", plain.Quote(y.name))
		}
		if len(code) == maxCode {
			return nil, problem.Errorf(problem.TooMuchToRead, "it has more than %d functions", maxCode)
		}
		if y.Size > 0 {
			code = append(code, function{place: place{int(y.Shndx), y.Value}, end: y.Value + y.Size})
		}
		if !s.programs() || y.name == "" {
			continue
		}
		if y.Size > 0 {
			code[len(code)-1].programs = []string{y.name}
		}
		switch {
		case plain.Truncate(y.name, maxName) != y.name || plain.Truncate(s.name, maxName) != s.name:
			return nil, problem.Errorf(problem.ObjectUnusual, "the name of its function %s in section %s has more than %d bytes, or isn't printable", plain.Quote(y.name), plain.Quote(s.name), maxName)
		case seen[y.name]:
			return nil, problem.Errorf(problem.ObjectUnusual, "it has two functions %s", plain.Quote(y.name))
		case len(found) == maxFunctions:
			return nil, problem.Errorf(problem.TooMuchToRead, "it has more than %d functions", maxFunctions)
		}
		seen[y.name] = true
		found = append(found, programIn(s.name, y.name))
	}
	if len(found) == 0 {
		return nil, f.withoutPrograms()
	}
	var err error
	f.code, err = f.disjoint(code)
	return found, err
}

// withoutPrograms returns why an object has no programs.
func (f *file) withoutPrograms() error {
	for _, s := range f.sections {
		if s.programs() {
			return problem.Errorf(problem.CompilerTooOld, "the code in its section %s belongs to no function, as old versions of clang write it: compile it with a current one", plain.Quote(s.name))
		}
	}
	return problem.Errorf(problem.NoPrograms, "it has no programs")
}

// codeOf returns the section of a function, or nil if the symbol isn't one.
func (f *file) codeOf(y symbol) *section {
	kind := elf.ST_TYPE(y.Info)
	if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC || int(y.Shndx) >= len(f.sections) || !f.sections[y.Shndx].code() {
		return nil
	}
	return &f.sections[y.Shndx]
}

// section returns the index of a section.
func (f *file) section(name string) (int, bool) {
	i := slices.IndexFunc(f.sections, func(s section) bool { return s.name == name })
	return i, i >= 0
}

func (f *file) has(name string) bool {
	_, ok := f.section(name)
	return ok
}

// license returns the license that the object declares.
func (f *file) license() string {
	for _, s := range f.sections {
		if strings.HasPrefix(s.name, "license") {
			declared, _, _ := bytes.Cut(s.data, []byte{0})
			return plain.Text(string(declared))
		}
	}
	return ""
}
