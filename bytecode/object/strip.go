// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Strip returns the object without its debug sections, which neither the kernel nor the
// daemon uses: about half of a file, which the daemon would read at each Load. All other
// sections have the same content and the same index, so that nothing that refers to a
// section changes. The headers of removed sections are empty. The same object always
// results in the same bytes.
func Strip(object []byte) ([]byte, error) {
	f, err := parse(object)
	if err != nil {
		return nil, err
	}
	return f.strip()
}

func debugName(name string) bool {
	return strings.HasPrefix(name, ".debug_") || strings.HasPrefix(name, ".zdebug_")
}

func (f *file) strip() ([]byte, error) {
	removed, err := f.debug()
	if err != nil {
		return nil, err
	}
	header := f.header
	header.Phoff = 0
	out := make([]byte, headerSize, len(f.content)+len(f.sections)*sectionSize)
	copy(out, f.content[:headerSize])
	headers := make([]elf.Section64, len(f.sections))
	for i, s := range f.sections {
		if removed[i] || elf.SectionType(s.Type) == elf.SHT_NULL {
			continue
		}
		out = aligned(out, max(s.Addralign, 1))
		headers[i] = s.Section64
		headers[i].Off = uint64(len(out))
		out = append(out, s.data...)
		// Sections that overlap in the file don't overlap here.
		if len(out) > reader.MaxObject {
			return nil, problem.Errorf(problem.ObjectTooLarge, "its sections have more than %d MiB", reader.MaxObject>>20)
		}
	}
	out = aligned(out, instructionSize)
	header.Shoff = uint64(len(out))
	for i := range headers {
		if out, err = binary.Append(out, f.order, headers[i]); err != nil {
			return nil, fmt.Errorf("write a section header: %w", err)
		}
	}
	if _, err := binary.Encode(out, f.order, header); err != nil {
		return nil, fmt.Errorf("write the ELF header: %w", err)
	}
	if len(out) > reader.MaxObject {
		return nil, problem.Errorf(problem.ObjectTooLarge, "its sections have more than %d MiB", reader.MaxObject>>20)
	}
	return out, nil
}

func aligned(out []byte, alignment uint64) []byte {
	return append(out, make([]byte, -uint64(len(out))&(alignment-1))...)
}

// debug returns the indexes of the debug sections and their relocations.
func (f *file) debug() (map[int]bool, error) {
	removed := map[int]bool{}
	for i, s := range f.sections {
		if !debugName(s.name) {
			continue
		}
		const used = elf.SHF_ALLOC | elf.SHF_EXECINSTR | elf.SHF_WRITE | elf.SHF_GROUP
		if elf.SectionType(s.Type) != elf.SHT_PROGBITS || s.flags()&used != 0 {
			return nil, problem.Errorf(problem.ObjectUnusual, "its section %s isn't an ordinary debug section", plain.Quote(s.name))
		}
		removed[i] = true
	}
	for i, s := range f.sections {
		if s.relocates() && removed[int(s.Info)] {
			removed[i] = true
		}
	}
	for _, s := range f.sections {
		if !debugName(s.name) && removed[int(s.Link)] && s.Link != 0 {
			return nil, problem.Errorf(problem.ObjectUnusual, "its section %s depends on a debug section", plain.Quote(s.name))
		}
	}
	return removed, nil
}
