// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// place is an instruction: the index of its section, and its offset in bytes.
type place struct {
	section int
	offset  uint64
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.section, b.section), cmp.Compare(a.offset, b.offset))
}

// function is the code of a function, from its place to the offset end.
type function struct {
	place

	end uint64
	// programs are the names with which it can be loaded. Compilers can give identical functions several.
	programs []string
}

// disjoint sorts functions by place, and merges programs that are the same. It refuses functions that overlap, which no
// compiler writes, so that each instruction is in one.
func (f *file) disjoint(all []function) ([]function, error) {
	slices.SortStableFunc(all, func(a, b function) int {
		return cmp.Or(comparePlaces(a.place, b.place), cmp.Compare(a.end, b.end))
	})
	var found []function
	for _, next := range all {
		last := len(found) - 1
		switch {
		case last < 0 || found[last].section != next.section || found[last].end <= next.offset:
			found = append(found, next)
		case found[last].place == next.place && found[last].end == next.end && f.sections[next.section].programs():
			found[last].programs = append(found[last].programs, next.programs...)
		default:
			return nil, problem.Errorf(problem.ObjectUnusual, "two of its functions in section %s overlap", plain.Quote(f.sections[next.section].name))
		}
	}
	return found, nil
}

// functionWith returns the index of the function that contains an instruction.
func functionWith(functions []function, instruction place) (index int, found bool) {
	n, exact := slices.BinarySearchFunc(functions, instruction, func(f function, at place) int { return comparePlaces(f.place, at) })
	if !exact {
		n--
	}
	return n, n >= 0 && functions[n].section == instruction.section && instruction.offset < functions[n].end
}

// functionAt returns the index of the function that begins at a place.
func functionAt(functions []function, at place) (index int, found bool) {
	n, found := functionWith(functions, at)
	return n, found && functions[n].place == at
}

// callGraph has the functions of an object, by place, and who refers to them.
type callGraph struct {
	functions []function
	callers   [][]int32 // indexes of functions, by the index of the function that they refer to
	failed    []bool
}

func (f *file) callGraph() *callGraph {
	g := &callGraph{f.code, make([][]int32, len(f.code)), make([]bool, len(f.code))}
	for n := range f.code {
		f.references(&f.code[n], func(_ uint64, to place) {
			callee, known := functionAt(g.functions, to)
			if !known {
				return
			}
			callers := g.callers[callee]
			if len(callers) == 0 || callers[len(callers)-1] != int32(n) { //nolint:gosec // at most maxCode
				g.callers[callee] = append(callers, int32(n)) //nolint:gosec // see above
			}
		})
	}
	return g
}

// references calls found with the offset of each instruction that refers to a place, and with the place.
func (f *file) references(from *function, found func(at uint64, to place)) {
	for at := from.offset; at < min(from.end, uint64(len(f.sections[from.section].data))); at += instructionSize { // none, if the section was removed
		if to, refers := f.reference(from.section, at); refers {
			found(at, to)
		}
	}
}

// reference returns the place to which the instruction at an offset of a section refers.
func (f *file) reference(section int, at uint64) (to place, refers bool) {
	content := f.sections[section].data[at:]
	immediate := uint64(int64(int32(f.order.Uint32(content[4:])))) //nolint:gosec // wraps around, as addresses do
	target, relocated := f.target(f.relocations(section), at)
	source, isCall := f.call(content)
	switch {
	case relocated && elf.ST_TYPE(target.Info) == elf.STT_SECTION && isCall:
		return place{int(target.Shndx), (immediate + 1) * instructionSize}, true
	case relocated && elf.ST_TYPE(target.Info) == elf.STT_SECTION:
		return place{int(target.Shndx), immediate}, true
	case relocated:
		return place{int(target.Shndx), target.Value}, true
	}
	return place{section, at + (immediate+1)*instructionSize}, isCall && source == callsFunction
}

// fail calls do with each function that becomes unusable because of an instruction: the one with the instruction, and
// those that refer to it. It calls do once for each function.
func (g *callGraph) fail(instruction place, do func(function)) {
	n, found := functionWith(g.functions, instruction)
	if !found {
		return
	}
	for next := []int32{int32(n)}; len(next) > 0; { //nolint:gosec // at most maxCode
		n := next[len(next)-1]
		next = next[:len(next)-1]
		if !g.failed[n] {
			g.failed[n] = true
			do(g.functions[n])
			next = append(next, g.callers[n]...)
		}
	}
}
