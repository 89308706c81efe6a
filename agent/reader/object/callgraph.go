// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/bpfman/bpfman-operator/agent/reader/plain"
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

// disjoint sorts functions by place, and merges those that are the same. It refuses functions that overlap, which no
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
		case found[last].place == next.place && found[last].end == next.end:
			found[last].programs = append(found[last].programs, next.programs...)
		default:
			return nil, fmt.Errorf("two of its functions in section %s overlap", plain.Quote(f.sections[next.section].name))
		}
	}
	return found, nil
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
		f.references(&f.code[n], func(to place) {
			callee, known := slices.BinarySearchFunc(g.functions, to, func(f function, to place) int { return comparePlaces(f.place, to) })
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

// references calls found with each place in code to which a function refers.
func (f *file) references(from *function, found func(place)) {
	content, relocations := f.sections[from.section].data, f.relocations(from.section)
	for at := from.offset; at < min(from.end, uint64(len(content))); at += instructionSize { // none, if the section was removed
		immediate := uint64(int64(int32(f.order.Uint32(content[at+4:])))) //nolint:gosec // wraps around, as addresses do
		target, relocated := f.target(relocations, at)
		source, isCall := f.call(content[at:])
		switch {
		case relocated && elf.ST_TYPE(target.Info) == elf.STT_SECTION && isCall:
			found(place{int(target.Shndx), (immediate + 1) * instructionSize})
		case relocated && elf.ST_TYPE(target.Info) == elf.STT_SECTION:
			found(place{int(target.Shndx), immediate})
		case relocated:
			found(place{int(target.Shndx), target.Value})
		case isCall && source == callsFunction:
			found(place{from.section, at + (immediate+1)*instructionSize})
		}
	}
}

// fail calls do with each function that becomes unusable because of an instruction: the one with the instruction, and
// those that refer to it. It calls do once for each function.
func (g *callGraph) fail(instruction place, do func(function)) {
	n, exact := slices.BinarySearchFunc(g.functions, instruction, func(f function, at place) int { return comparePlaces(f.place, at) })
	if !exact {
		n--
	}
	if n < 0 || g.functions[n].section != instruction.section || g.functions[n].end <= instruction.offset {
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
