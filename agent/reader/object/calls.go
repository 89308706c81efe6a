// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"

	"github.com/bpfman/bpfman-operator/agent/reader/plain"
)

// The source register of a call says what is called: BPF_PSEUDO_CALL and
// BPF_PSEUDO_KFUNC_CALL. Of a load, it says what is loaded: BPF_PSEUDO_BTF_ID.
const (
	callsHelper         = 0
	callsFunction       = 1
	callsKernelFunction = 2
	loadsNumber         = 0
	loadsKernelVariable = 3
)

// calls returns the kernel's functions that any instruction calls, sorted. It reads all
// code, whether or not a program reaches it, because the daemon can load any function.
func (f *file) calls() []string {
	found := map[string]bool{}
	for i := range f.sections {
		s := &f.sections[i]
		if !s.code() {
			continue
		}
		var targets map[uint64]symbol
		for at := 0; at+instructionSize <= len(s.data); at += instructionSize {
			source, ok := f.call(s.data[at:])
			if !ok {
				continue
			}
			number := f.order.Uint32(s.data[at+4:])
			if source == callsHelper {
				found[helper(asm.BuiltinFunc(number))] = true
				continue
			}
			if targets == nil {
				targets = f.targets(i)
			}
			target, relocated := targets[uint64(at)]
			switch external := relocated && target.Shndx == uint16(elf.SHN_UNDEF) && target.name != ""; {
			case external:
				found["kfunc:"+plain.Text(target.name)] = true
			case source == callsKernelFunction:
				found["kfunc:#"+strconv.FormatUint(uint64(number), 10)] = true
			case source != callsFunction:
				found["unknown#"+strconv.FormatUint(uint64(number), 10)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// call returns the source register of a call instruction. ok is false for any other
// instruction.
func (f *file) call(instruction []byte) (source byte, ok bool) {
	op := asm.OpCode(instruction[0])
	if class := op.Class(); class != asm.JumpClass && class != asm.Jump32Class || op.JumpOp() != asm.Call || op.Source() != asm.ImmSource {
		return 0, false
	}
	const nibble = 4
	if f.order == binary.BigEndian {
		return instruction[1] & (1<<nibble - 1), true
	}
	return instruction[1] >> nibble, true
}

// targets returns the symbols to which the instructions of a section are relocated, by
// the instruction's offset.
func (f *file) targets(of int) map[uint64]symbol {
	found := map[uint64]symbol{}
	for _, s := range f.sections {
		size := s.relocationSize()
		if size == 0 || int64(s.Info) != int64(of) {
			continue
		}
		for at := 0; at+size <= len(s.data); at += size {
			number := f.order.Uint64(s.data[at+8:]) >> 32
			if number < uint64(len(f.symbols)) {
				found[f.order.Uint64(s.data[at:])] = f.symbols[number]
			}
		}
	}
	return found
}

// relocationSize returns the size of a relocation in the section, in bytes, or 0 if it has
// none.
func (s *section) relocationSize() int {
	switch elf.SectionType(s.Type) {
	case elf.SHT_REL:
		return relSize
	case elf.SHT_RELA: //nolint:misspell // its name in ELF
		return relaSize
	default:
		return 0
	}
}

// helper returns the name of a helper in linux/bpf.h. The library has it in camel case.
func helper(f asm.BuiltinFunc) string {
	name, known := strings.CutPrefix(f.String(), "Fn")
	if !known || f == asm.FnUnspec {
		return "unknown#" + strconv.FormatUint(uint64(f), 10)
	}
	var b strings.Builder
	b.WriteString("bpf")
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
