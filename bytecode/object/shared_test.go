// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"debug/elf"
	"reflect"
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// sharing has the functions f, which uses hits, g, which calls one that uses hits and the static variable last, h, which uses
// last and own, and i, which uses limit. All but limit can be written.
func sharing() []byte {
	const hits, last, own, limit, data, helper = 6, 7, 8, 9, 10, 5
	variable := func(name string, bind elf.SymBind, section int, at uint64) symbol {
		return symbol{elf.Sym64{Info: elf.ST_INFO(bind, elf.STT_OBJECT), Shndx: uint16(section), Value: at, Size: 8}, name}
	}
	at := func(addend byte) []byte {
		relocated := slices.Clone(load)
		relocated[4] = addend
		return relocated
	}
	to := func(instruction uint64, symbol uint32) elf.Rel64 {
		return elf.Rel64{Off: instruction * instructionSize, Info: elf.R_INFO(symbol, loadRelocation)}
	}
	return object([]symbol{
		functionSymbol("f", 3, 0, 3), functionSymbol("g", 3, 3, 2), functionSymbol("h", 3, 5, 5), functionSymbol("i", 3, 10, 3), functionSymbol("helper", 4, 0, 5),
		variable("hits", elf.STB_GLOBAL, 5, 0), variable("last", elf.STB_LOCAL, 5, 8), variable("own", elf.STB_GLOBAL, 5, 16), variable("limit", elf.STB_GLOBAL, 6, 0),
		{elf.Sym64{Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_SECTION), Shndx: 5}, ""},
	},
		code("kprobe", []elf.Rel64{
			to(0, hits), {Off: 3 * instructionSize, Info: elf.R_INFO(helper, callRelocation)}, to(5, data), to(7, own), to(10, limit),
		}, slices.Concat(load, exit, calls, exit, at(12), load, exit, load, exit)...),
		code(".text", []elf.Rel64{to(0, data), to(2, last)}, slices.Concat(load, load, exit)...),
		written{name: ".bss", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, content: make([]byte, 24)},
		written{name: ".rodata", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, content: make([]byte, 8)},
	)
}

func TestShared(t *testing.T) {
	described, err := Describe(sharing(), withoutTypes(nil))
	want := []reader.SharedVariable{{Name: "hits", Functions: []string{"f", "g"}}, {Name: "last", Functions: []string{"g", "h"}}}
	if err != nil || !reflect.DeepEqual(described.Facts.Shared, want) {
		t.Errorf("%+v, %v, want %+v", described, err, want)
	}
}
