// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"os"
	"slices"
	"strings"
	"testing"
)

// symbol returns a defined symbol.
func symbol(kind elf.SymType, value uint64) elf.Symbol {
	return elf.Symbol{Name: "f", Info: elf.ST_INFO(elf.STB_GLOBAL, kind), Section: 1, Value: value, Size: 16}
}

func hidden(s elf.Symbol) elf.Symbol {
	s.HasVersion, s.VersionIndex = true, 0x8002
	return s
}

func shown(s elf.Symbol) elf.Symbol {
	s.HasVersion, s.VersionIndex = true, 3
	return s
}

func undefined(s elf.Symbol) elf.Symbol {
	s.Section = elf.SHN_UNDEF
	return s
}

func TestVersionsOfFunctions(t *testing.T) {
	direct := func(value uint64) elf.Symbol { return symbol(elf.STT_FUNC, value) }
	indirect := symbol(sttIndirect, 9)
	another := direct(8)
	another.Name = "g"
	for name, c := range map[string]struct {
		static, dynamic []elf.Symbol
		want            uint64
		err             string
	}{
		"one":                            {nil, []elf.Symbol{another, direct(1)}, 1, ""},
		"in the symbol table alone":      {[]elf.Symbol{direct(1)}, nil, 1, ""},
		"the default version, first":     {nil, []elf.Symbol{shown(direct(1)), hidden(direct(2))}, 1, ""},
		"the default version, last":      {nil, []elf.Symbol{hidden(direct(2)), shown(direct(1))}, 1, ""},
		"an old version alone":           {nil, []elf.Symbol{hidden(direct(2))}, 2, ""},
		"a local one, and the exported":  {[]elf.Symbol{direct(2)}, []elf.Symbol{direct(1)}, 1, ""},
		"indirect, like strlen":          {nil, []elf.Symbol{shown(indirect)}, 0, "function f is indirect"},
		"an alias of memcpy's old form":  {nil, []elf.Symbol{hidden(direct(2)), shown(indirect)}, 0, "function f is indirect"},
		"the other order":                {nil, []elf.Symbol{shown(indirect), hidden(direct(2))}, 0, "function f is indirect"},
		"an old version that's indirect": {nil, []elf.Symbol{hidden(indirect), shown(direct(1))}, 1, ""},
		"a library's":                    {nil, []elf.Symbol{undefined(direct(0))}, 0, "function f isn't in it"},
		"a library's, with an entry":     {nil, []elf.Symbol{undefined(direct(7))}, 7, ""},
		"none":                           {[]elf.Symbol{another}, []elf.Symbol{symbol(elf.STT_OBJECT, 1), another}, 0, "it doesn't have the function f"},
	} {
		got, err := choose(c.static, c.dynamic, "f")
		if got.Value != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %#x, %v, want %#x, %q", name, got.Value, err, c.want, c.err)
		}
	}
}

// Functions in assembly can lack a size.
func TestOffsetsInFunctions(t *testing.T) {
	unsized := symbol(elf.STT_FUNC, 1)
	unsized.Size = 0
	for name, c := range map[string]struct {
		symbol elf.Symbol
		offset uint64
		inside bool
	}{
		"its beginning":                 {symbol(elf.STT_FUNC, 1), 0, true},
		"its end":                       {symbol(elf.STT_FUNC, 1), 15, true},
		"after its end":                 {symbol(elf.STT_FUNC, 1), 16, false},
		"the beginning without a size":  {unsized, 0, true},
		"an instruction without a size": {unsized, 4, true},
	} {
		if err := within(c.symbol, c.offset); (err == nil) != c.inside {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The offset of a function in this test's own file has the function's code.
func TestOffsetInFile(t *testing.T) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Skipf("this test has no symbols: %v", err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return strings.HasSuffix(s.Name, "bpfman-ns.offsetOf") })
	if i < 0 {
		t.Fatal("this test's own functions aren't among its symbols")
	}
	function, text := symbols[i], f.Section(".text")
	want, got := make([]byte, 16), make([]byte, 16)
	if _, err := text.ReadAt(want, int64(function.Value-text.Addr)); err != nil {
		t.Fatal(err)
	}
	at, err := offsetOf(file, function.Name, 0)
	if err == nil {
		_, err = file.ReadAt(got, int64(at))
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x at %#x, %v, want %x", got, at, err, want)
	}
	if inside, err := offsetOf(file, function.Name, 4); err != nil || inside != at+4 {
		t.Errorf("%#x, %v, want %#x", inside, err, at+4)
	}
	if _, err := offsetOf(file, function.Name, function.Size); err == nil {
		t.Error("an offset behind the function is accepted")
	}
	for _, content := range []string{"", "\x7fELF", "app"} {
		if _, err := offsetOf(strings.NewReader(content), "f", 0); err == nil || !strings.Contains(err.Error(), "parse ELF file") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// FuzzOffset reads files that a container's owner wrote.
func FuzzOffset(f *testing.F) {
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content[:4096])
	f.Fuzz(func(_ *testing.T, content []byte) {
		_, _ = offsetOf(bytes.NewReader(content), "f", 0)
	})
}
