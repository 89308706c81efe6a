// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Types of relocations in the ELF of BPF: of the number that an instruction loads, and of the function that it calls.
const (
	loadRelocation = 1  // R_BPF_64_64
	callRelocation = 10 // R_BPF_64_32
)

// maxLinked is the kernel's limit for the functions of a program (BPF_MAX_SUBPROGS).
const maxLinked = 256

// link refuses the references that the daemon's loader can't resolve. Otherwise, it would refuse the whole object because
// of one of its functions, load something else, or end with the daemon.
func (a *adaption) link() {
	for i := range a.sections {
		if !a.sections[i].code() {
			continue
		}
		for _, r := range a.relocations(i) {
			if a.dropped[place{i, r.offset}] {
				continue
			}
			if err := a.linkable(i, r); err != nil {
				a.refuse(i, r.offset, err)
			}
		}
	}
	for n := range a.code {
		section := a.code[n].section
		a.references(&a.code[n], func(at uint64, to place) {
			_, relocated := a.target(a.relocations(section), at) // then it has been checked above
			if _, begins := functionAt(a.code, to); !relocated && !begins {
				a.refuse(section, at, problem.Errorf(problem.ObjectUnusual, "it calls something that isn't the beginning of a function"))
			}
		})
	}
	a.linked()
}

// linkable returns why the loader can't resolve a relocation.
func (a *adaption) linkable(section int, r relocation) error {
	y := a.symbols[r.symbol]
	code, ok := within(a.sections[section].data, r.offset, instructionSize)
	if !ok || r.offset%instructionSize != 0 {
		return problem.Errorf(problem.ObjectUnusual, "the relocation is outside of the section")
	}
	source, isCall := a.call(code)
	isLoad := a.loads(place{section, r.offset})
	kind := elf.ST_TYPE(y.Info)
	undefined := elf.SectionIndex(y.Shndx) == elf.SHN_UNDEF
	switch {
	case undefined && y.name != "": // it is connected
		return nil
	case undefined || int(y.Shndx) >= len(a.sections):
		return problem.Errorf(problem.ObjectUnusual, "it refers to the symbol %s, which isn't in a section", plain.Quote(y.name))
	case a.sections[y.Shndx].maps() || a.sections[y.Shndx].variables():
		if !isLoad {
			return problem.Errorf(problem.ObjectUnusual, "the instruction doesn't load the address of what it refers to")
		}
		return nil
	case !a.sections[y.Shndx].code():
		return problem.Errorf(problem.SectionUnknown, "it refers to the section %s, which has neither functions nor variables", plain.Quote(a.sections[y.Shndx].name))
	case kind != elf.STT_FUNC && (kind != elf.STT_SECTION || isCall && r.kind != callRelocation || isLoad && r.kind != loadRelocation):
		return problem.Errorf(problem.ObjectUnusual, "it refers to the symbol %s, which isn't a function", plain.Quote(y.name))
	case !isLoad && (!isCall || source != callsFunction):
		return problem.Errorf(problem.ObjectUnusual, "the instruction neither calls a function nor loads its address")
	}
	to, _ := a.reference(section, r.offset)
	if _, begins := functionAt(a.code, to); !begins {
		return problem.Errorf(problem.ObjectUnusual, "it refers to something that isn't the beginning of a function")
	}
	return nil
}

// loads reports whether an instruction loads a number of 64 bits, for which it has two parts.
func (f *file) loads(at place) bool {
	n, found := functionWith(f.code, at)
	code, ok := within(f.sections[at.section].data, at.offset, 2*instructionSize)
	return found && ok && at.offset+2*instructionSize <= f.code[n].end && asm.OpCode(code[0]).IsDWordLoad()
}

// variables reports whether the daemon's loader makes a map of the section.
func (s *section) variables() bool {
	return slices.ContainsFunc([]string{".bss", ".data", ".rodata"}, func(prefix string) bool { return strings.HasPrefix(s.name, prefix) })
}

// linked checks what the loader links to each program: it recognizes a function that it has linked by its offset, no matter what
// its section.
func (a *adaption) linked() {
	l := &linkage{adaption: a, callees: a.callees(), offsets: make([]int, len(a.code))}
	numbers := map[uint64]int{}
	for n, f := range a.code {
		if _, known := numbers[f.offset]; !known {
			numbers[f.offset] = len(numbers)
		}
		l.offsets[n] = numbers[f.offset]
	}
	l.at = make([]linkedFunction, len(numbers))
	for n, f := range a.code {
		if len(f.programs) == 0 {
			continue
		}
		if why := l.linkable(n); why != nil {
			a.references(&a.code[n], func(at uint64, _ place) { a.refuse(f.section, at, why) })
		}
	}
}

// callees returns the functions that each function refers to, without those that it refers to again.
func (a *adaption) callees() [][]int {
	callees, last := make([][]int, len(a.code)), make([]int, len(a.code))
	for n := range a.code {
		a.references(&a.code[n], func(at uint64, to place) {
			callee, begins := functionAt(a.code, to)
			if begins && last[callee] != n+1 && !a.dropped[place{a.code[n].section, at}] {
				last[callee] = n + 1
				callees[n] = append(callees[n], callee)
			}
		})
	}
	return callees
}

// linkage has what the loader links. All indexes of functions are those in adaption.code.
type linkage struct {
	*adaption

	callees [][]int
	// offsets has a number for the offset of each function, and at the function that was linked last with it.
	offsets []int
	at      []linkedFunction
}

// linkedFunction is a function that was linked to a program.
type linkedFunction struct{ program, function int }

// linkable returns why the loader can't link a program. It takes at most maxLinked steps for each function that
// is linked.
func (l *linkage) linkable(program int) error {
	found := []int{program}
	for next := 0; next < len(found); next++ {
		for _, callee := range l.callees[found[next]] {
			switch at := &l.at[l.offsets[callee]]; {
			case at.program != program+1:
				*at = linkedFunction{program + 1, callee}
				found = append(found, callee)
			case at.function != callee:
				return problem.Errorf(problem.FunctionsOverlap, "it calls functions at the same offset of the sections %s and %s, which the daemon confuses: declare one of them with __always_inline",
					plain.Quote(l.sections[l.code[at.function].section].name), plain.Quote(l.sections[l.code[callee].section].name))
			}
			if len(found) > maxLinked {
				return problem.Errorf(problem.TooManyFunctions, "it calls more than %d functions, which no kernel accepts", maxLinked-1)
			}
		}
	}
	return nil
}

// refuse marks the programs that contain an instruction, as fail does, and has the loader ignore what it refers to.
func (a *adaption) refuse(section int, offset uint64, reason error) {
	a.fail(section, offset, reason)
	a.dropped[place{section, offset}] = true
}

// callNothing makes an instruction call what the verifier refuses.
func (a *adaption) callNothing(code []byte) {
	a.setSource(code, callsHelper)
	a.order.PutUint32(code[4:], btf.COREBadRelocationSentinel)
}

// drop removes the relocations that the loader must not see, and the calls that need them.
func (a *adaption) drop() {
	for at := range a.dropped {
		code, ok := within(a.sections[at.section].data, at.offset, instructionSize)
		if !ok {
			continue
		}
		if source, isCall := a.call(code); isCall && source != callsHelper {
			a.callNothing(code)
		}
	}
	for i := range a.sections {
		s := &a.sections[i]
		if !s.relocates() || len(a.dropped) == 0 {
			continue
		}
		var kept []byte
		for entry := range slices.Chunk(s.data, relSize) {
			if !a.dropped[place{int(s.Info), a.order.Uint64(entry)}] {
				kept = append(kept, entry...)
			}
		}
		s.change(kept)
	}
}
