// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"debug/elf"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// maxUsers is the maximum number of programs that are found for a variable or function.
	maxUsers = 16
	// maxShared is the maximum number of programs' names in what shared returns.
	maxShared = 1024
)

// writable reports whether a section has global variables that programs can write.
func (s *section) writable() bool { return s.variables() && !strings.HasPrefix(s.name, ".rodata") }

// shared returns the writable global variables that more than one program uses, itself or in functions that it calls.
func (f *file) shared() []reader.SharedVariable {
	variables := f.variables()
	if len(variables) == 0 {
		return nil
	}
	var all []reader.SharedVariable
	names, users := 0, f.users(variables)
	for n, v := range variables {
		s := reader.SharedVariable{Name: v.name}
		for _, p := range users[n] {
			s.Functions = append(s.Functions, f.code[p].programs...)
		}
		if len(s.Functions) < 2 {
			continue
		}
		if names += len(s.Functions); names > maxShared {
			break
		}
		slices.Sort(s.Functions)
		all = append(all, s)
	}
	return all
}

// users returns the programs that use each variable: indexes of functions, at most maxUsers.
func (f *file) users(variables []variableSymbol) [][]int32 {
	users, programs := make([][]int32, len(variables)), f.callingPrograms()
	for n := range f.code {
		f.references(&f.code[n], func(_ uint64, to place) {
			at, found := slices.BinarySearchFunc(variables, to, func(v variableSymbol, to place) int {
				if v.section == to.section && v.offset <= to.offset && to.offset < v.end {
					return 0
				}
				return comparePlaces(v.place, to)
			})
			if !found {
				return
			}
			for _, p := range programs[n] {
				users[at] = include(users[at], p)
			}
		})
	}
	return users
}

// variableSymbol is a variable in a section, up to the offset end.
type variableSymbol struct {
	place

	end  uint64
	name string
}

// variables returns the writable global variables, also static ones, by place.
func (f *file) variables() []variableSymbol {
	var all []variableSymbol
	for _, y := range f.symbols {
		if elf.ST_TYPE(y.Info) == elf.STT_OBJECT && int(y.Shndx) < len(f.sections) && f.sections[y.Shndx].writable() &&
			y.Size > 0 && plain.Truncate(y.name, maxName) == y.name {
			all = append(all, variableSymbol{place{int(y.Shndx), y.Value}, y.Value + y.Size, y.name})
		}
	}
	slices.SortStableFunc(all, func(a, b variableSymbol) int {
		return cmp.Or(comparePlaces(a.place, b.place), cmp.Compare(a.end, b.end))
	})
	return slices.CompactFunc(all, func(a, b variableSymbol) bool { return a.place == b.place })
}

// callingPrograms returns, for each function, the programs that are that function or call it, directly or not: indexes of
// functions, at most maxUsers.
func (f *file) callingPrograms() [][]int32 {
	callees := make([][]int32, len(f.code))
	for callee, callers := range f.callGraph().callers {
		for _, n := range callers {
			callees[n] = append(callees[n], int32(callee))
		}
	}
	programs := make([][]int32, len(f.code))
	type visit struct{ function, program int32 }
	var next []visit
	reach := func(n, p int32) {
		before := len(programs[n])
		if programs[n] = include(programs[n], p); len(programs[n]) > before {
			next = append(next, visit{n, p})
		}
	}
	for n := range f.code {
		if len(f.code[n].programs) > 0 {
			reach(int32(n), int32(n))
		}
		for len(next) > 0 {
			v := next[len(next)-1]
			next = next[:len(next)-1]
			for _, callee := range callees[v.function] {
				reach(callee, v.program)
			}
		}
	}
	return programs
}

// include adds a program, unless it is there or there are maxUsers.
func include(programs []int32, p int32) []int32 {
	if len(programs) == maxUsers || slices.Contains(programs, p) {
		return programs
	}
	return append(programs, p)
}
