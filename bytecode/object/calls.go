// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
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
			target, relocated := f.target(f.relocations(i), uint64(at))
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

// absentFunction is what a call becomes that the kernel can't make: the verifier refuses it where a program can get there.
var absentFunction = helper(asm.BuiltinFunc(btf.COREBadRelocationSentinel))

// beyond returns the functions among after that aren't among before, and that the kernel has.
func beyond(before, after []string) []string {
	return slices.DeleteFunc(after, func(name string) bool { return name == absentFunction || slices.Contains(before, name) })
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

// relocation makes the instruction at an offset refer to a symbol, by its index.
type relocation struct {
	offset       uint64
	symbol, kind uint32
}

// relocations returns the relocations of a section, by offset. There is one for an offset.
func (f *file) relocations(of int) []relocation {
	if f.relocated == nil {
		f.relocated = map[int][]relocation{}
		for _, s := range f.sections {
			for at := 0; s.relocates() && at < len(s.data); at += relSize {
				info := f.order.Uint64(s.data[at+8:])
				if number := info >> 32; number < uint64(len(f.symbols)) {
					f.relocated[int(s.Info)] = append(f.relocated[int(s.Info)], relocation{f.order.Uint64(s.data[at:]), uint32(number), uint32(info)}) //nolint:gosec // the other half
				}
			}
		}
		for section, all := range f.relocated {
			slices.SortStableFunc(all, func(a, b relocation) int { return cmp.Compare(b.offset, a.offset) })
			slices.Reverse(all) // of several for an offset, the last one counts
			f.relocated[section] = slices.CompactFunc(all, func(a, b relocation) bool { return a.offset == b.offset })
		}
	}
	return f.relocated[of]
}

// target returns the symbol to which the instruction at an offset refers.
func (f *file) target(among []relocation, at uint64) (symbol, bool) {
	i, found := slices.BinarySearchFunc(among, at, func(r relocation, at uint64) int { return cmp.Compare(r.offset, at) })
	if !found {
		return symbol{}, false
	}
	return f.symbols[among[i].symbol], true
}

// relocates reports whether the section has relocations of another one.
func (s *section) relocates() bool { return elf.SectionType(s.Type) == elf.SHT_REL }

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
