// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Instructions, of which load is two. Unless it is relocated, calls is a call of the function behind the next instruction.
var (
	calls   = []byte{0x85, callsFunction << 4, 0, 0, 1, 0, 0, 0}
	nowhere = []byte{0x85, callsFunction << 4, 0, 0, 99, 0, 0, 0}
	load    = []byte{0x18, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	exit    = []byte{0x95, 0, 0, 0, 0, 0, 0, 0}
)

// The symbols of these objects. The sections are kprobe with the functions f and good, .text with called, custom, and .data.
const (
	toUndefined = iota + 4
	toFunction
	toLabel
	toText
	toAbsolute
	toUndefinedFunction
	toCustom
	toVariable
)

func linkObject(instructions []byte, relocations ...elf.Rel64) []byte {
	length := uint64(len(instructions)) / instructionSize
	f := functionSymbol("f", 3, 0, length)
	info := func(kind elf.SymType) uint8 { return elf.ST_INFO(elf.STB_GLOBAL, kind) }
	return object([]symbol{
		f, functionSymbol("good", 3, length+1, 2), functionSymbol("called", 4, 0, 2),
		{elf.Sym64{Info: info(elf.STT_NOTYPE)}, "undefined"},
		functionSymbol("called_too", 4, 2, 1),
		{elf.Sym64{Info: info(elf.STT_NOTYPE), Shndx: 4, Value: instructionSize}, "label"},
		{elf.Sym64{Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_SECTION), Shndx: 4}, ""},
		{elf.Sym64{Info: info(elf.STT_FUNC), Shndx: uint16(elf.SHN_ABS)}, "absolute"},
		{elf.Sym64{Info: info(elf.STT_FUNC)}, "undefined_function"},
		{elf.Sym64{Info: info(elf.STT_OBJECT), Shndx: 5}, "custom"},
		{elf.Sym64{Info: info(elf.STT_OBJECT), Shndx: 6}, "variable"},
	},
		code("kprobe", append(relocations, elf.Rel64{Off: (length + 1) * instructionSize, Info: elf.R_INFO(toFunction, callRelocation)}), slices.Concat(instructions, exit, calls, exit)...),
		code(".text", nil, slices.Concat(load[:8], exit, exit)...),
		written{name: "custom", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, content: make([]byte, 8)},
		written{name: ".data", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, content: make([]byte, 8)},
	)
}

// What the daemon's loader can't link makes the function unusable that refers to it, and no other. The loader doesn't see
// it: it would refuse the whole object, or end with the daemon.
func TestLink(t *testing.T) {
	to := func(symbol, kind uint32) elf.Rel64 { return elf.Rel64{Info: elf.R_INFO(symbol, kind)} }
	for name, c := range map[string]struct {
		instructions []byte
		relocations  []elf.Rel64
		want         string
	}{
		"a call":                                {calls, []elf.Rel64{to(toFunction, callRelocation)}, ""},
		"a call in a section":                   {append([]byte{0x85, callsFunction << 4, 0, 0}, 1, 0, 0, 0), []elf.Rel64{to(toText, callRelocation)}, ""},
		"the address of a function":             {load, []elf.Rel64{to(toFunction, loadRelocation)}, ""},
		"a variable":                            {load, []elf.Rel64{to(toVariable, loadRelocation)}, ""},
		"a call of nothing":                     {nowhere, nil, "it calls something that isn't the beginning of a function"},
		"a call of nothing in a section":        {nowhere, []elf.Rel64{to(toText, callRelocation)}, "it refers to something that isn't the beginning of a function"},
		"a call of a label":                     {calls, []elf.Rel64{to(toLabel, callRelocation)}, `it refers to the symbol "label", which isn't a function`},
		"a call with an unknown relocation":     {calls, []elf.Rel64{to(toText, 3)}, "which isn't a function"},
		"an address with an unknown relocation": {load, []elf.Rel64{to(toText, 3)}, "which isn't a function"},
		"a call of an absolute address":         {calls, []elf.Rel64{to(toAbsolute, callRelocation)}, `it refers to the symbol "absolute", which isn't in a section`},
		"a call of an undefined symbol":         {calls, []elf.Rel64{to(toUndefined, callRelocation)}, `it uses the external "undefined": it isn't defined in the object`},
		"a call of an undefined function":       {calls, []elf.Rel64{to(toUndefinedFunction, callRelocation)}, `it uses the external "undefined_function": it isn't defined in the object`},
		"the address of an undefined function":  {load, []elf.Rel64{to(toUndefinedFunction, loadRelocation)}, `it uses the external "undefined_function": it isn't defined in the object`},
		"data in a section without a map":       {load, []elf.Rel64{to(toCustom, loadRelocation)}, `it refers to the section "custom", which has neither functions nor variables`},
		"a call of a variable":                  {calls, []elf.Rel64{to(toVariable, callRelocation)}, "the instruction doesn't load the address of what it refers to"},
		"half a load of a variable":             {slices.Concat(load[:8], exit), []elf.Rel64{to(toVariable, loadRelocation)}, ""},
		"half a load at the end":                {slices.Concat(exit, load[:8]), []elf.Rel64{{Off: instructionSize, Info: elf.R_INFO(toVariable, loadRelocation)}}, "the instruction doesn't load the address of what it refers to"},
		"an exit that refers to a function":     {exit, []elf.Rel64{to(toFunction, callRelocation)}, "the instruction neither calls a function nor loads its address"},
		"a relocation within an instruction":    {load, []elf.Rel64{{Off: 4, Info: elf.R_INFO(toVariable, loadRelocation)}}, "the relocation is outside of the section"},
	} {
		t.Run(name, func(t *testing.T) {
			content := linkObject(c.instructions, c.relocations...)
			adapted, err := Adapt(content, withoutTypes(nil))
			if err != nil {
				t.Fatal(err)
			}
			// What depends on the kernel isn't known without one.
			if o, err := Read(content); err != nil || !strings.Contains(adapted.Unusable["f"], "external") && o.Programs[0].Unsupported != adapted.Unusable["f"] {
				t.Errorf("read as %+v, %v", o, err)
			}
			if got := adapted.Unusable["f"]; !strings.Contains(got, c.want) || (got == "") != (c.want == "") || adapted.Unusable["good"] != "" {
				t.Errorf("unusable %q, want %q", adapted.Unusable, c.want)
			}
			again, err := Adapt(adapted.Content, withoutTypes(nil))
			if err != nil || len(again.Unusable) != 0 {
				t.Errorf("the loader still sees it: %v, %v", again, err)
			}
			f, err := parse(adapted.Content)
			if err != nil {
				t.Fatal(err)
			}
			kept := 1 // of the function good
			if c.want == "" {
				kept += len(c.relocations)
			}
			if got := f.relocations(3); len(got) != kept {
				t.Errorf("%d relocations, want %d", len(got), kept)
			}
		})
	}
}

// The loader recognizes functions by their offset, and links what they call recursively.
func TestLinked(t *testing.T) {
	call := func(at uint64, symbol uint32) elf.Rel64 {
		return elf.Rel64{Off: at * instructionSize, Info: elf.R_INFO(symbol, callRelocation)}
	}
	same := object([]symbol{
		functionSymbol("own", 3, 0, 1), functionSymbol("f", 3, 1, 3), functionSymbol("called", 4, 0, 1), functionSymbol("good", 3, 4, 2),
	}, code("kprobe", []elf.Rel64{call(1, 1), call(2, 3), call(4, 3)}, slices.Concat(exit, calls, calls, exit, calls, exit)...), code(".text", nil, exit...))
	adapted, err := Adapt(same, withoutTypes(nil))
	if want := `it calls functions at the same offset of the sections "kprobe" and ".text", which the daemon confuses: declare one of them with __always_inline`; err != nil ||
		len(adapted.Unusable) != 1 || adapted.Unusable["f"] != want {
		t.Errorf("unusable %v, %v", adapted, err)
	}

	// Each function but the last calls the next one.
	chain := func(functions int) []byte {
		symbols, relocations := []symbol{functionSymbol("f", 3, 0, 2), functionSymbol("good", 3, 2, 1)}, []elf.Rel64{}
		for n := range functions {
			symbols = append(symbols, functionSymbol(fmt.Sprintf("c%d", n), 4, uint64(2*n), 2))
			if n > 0 {
				relocations = append(relocations, call(uint64(2*n-2), uint32(n+3)))
			}
		}
		text := bytes.Repeat(slices.Concat(calls, exit), functions)
		copy(text[len(text)-16:], exit)
		return object(symbols, code("kprobe", []elf.Rel64{call(0, 3)}, slices.Concat(calls, exit, exit)...), code(".text", relocations, text...))
	}
	for functions, want := range map[int]string{maxLinked - 1: "", maxLinked: "it calls more than 255 functions, which no kernel accepts"} {
		adapted, err := Adapt(chain(functions), withoutTypes(nil))
		if err != nil || adapted.Unusable["f"] != want || adapted.Unusable["good"] != "" {
			t.Errorf("%d functions: unusable %v, %v", functions, adapted, err)
			continue
		}
		if again, err := Adapt(adapted.Content, withoutTypes(nil)); err != nil || len(again.Unusable) != 0 {
			t.Errorf("the loader still sees it: %v, %v", again, err)
		}
	}
}

// A function that refers to another one many times takes one step for each program that links it. Two functions at one
// offset, and too many functions, end the search.
func TestLinkedOnce(t *testing.T) {
	const programs, many = 64, 10_000
	symbols := []symbol{functionSymbol("hub", 4, 0, many), functionSymbol("called", 4, many, 1)}
	var relocations, inText []elf.Rel64
	for n := range uint64(programs) {
		symbols = append(symbols, functionSymbol(fmt.Sprintf("f%d", n), 3, 2*n, 2))
		relocations = append(relocations, elf.Rel64{Off: 2 * n * instructionSize, Info: elf.R_INFO(1, callRelocation)})
	}
	for n := range uint64(many) {
		inText = append(inText, elf.Rel64{Off: n * instructionSize, Info: elf.R_INFO(2, callRelocation)})
	}
	f, err := parse(object(symbols,
		code("kprobe", relocations, bytes.Repeat(slices.Concat(calls, exit), programs)...),
		code(".text", inText, slices.Concat(bytes.Repeat(calls, many), exit)...),
	))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.functions(); err != nil {
		t.Fatal(err)
	}
	a := &adaption{file: f, unusable: map[string]string{}, problems: map[string]problem.Reason{}, dropped: map[place]bool{}}
	steps := 0
	for _, callees := range a.callees() {
		steps += len(callees)
	}
	if steps != programs+1 {
		t.Errorf("%d steps for %d calls of two functions, want %d", steps, programs+many, programs+1)
	}
	if a.linked(); len(a.unusable) != 0 {
		t.Errorf("unusable %v", a.unusable)
	}
}
