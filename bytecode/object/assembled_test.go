// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// number is the type of keys, and of what values have.
var number = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}

// defined returns the variable that defines a map in libbpf's form.
func defined(name string, kind ebpf.MapType, pinned bool, key, value btf.Type) *btf.Var {
	definition := &btf.Struct{}
	member := func(name string, of btf.Type) {
		definition.Members = append(definition.Members, btf.Member{Name: name, Type: &btf.Pointer{Target: of}, Offset: btf.Bits(definition.Size * 8)})
		definition.Size += 8
	}
	length := func(n uint32) btf.Type { return &btf.Array{Index: number, Type: number, Nelems: n} }
	member("type", length(uint32(kind)))
	member("max_entries", length(8))
	member("key", key)
	member("value", value)
	if pinned {
		member("pinning", length(uint32(ebpf.PinByName)))
	}
	return &btf.Var{Name: name, Type: definition, Linkage: btf.GlobalVar}
}

// assembled returns an object as a compiler writes it, with the sections that most objects have: the programs f, which uses
// the first map and calls a helper, and g, maps, the global variable limit, and debug sections.
func assembled(tb testing.TB, definitions ...*btf.Var) []byte {
	tb.Helper()
	return assembledWith(tb, number, definitions...)
}

// assembledWith is assembled with another type of the global variable, of four bytes.
func assembledWith(tb testing.TB, limit btf.Type, definitions ...*btf.Var) []byte {
	tb.Helper()
	list, variables := &btf.Datasec{Name: mapsSection}, &btf.Datasec{Name: ".rodata", Size: 4}
	symbols := []symbol{functionSymbol("f", 3, 0, 4), functionSymbol("g", 3, 4, 1)}
	data := func(name string, section int, at, size uint64) {
		symbols = append(symbols, symbol{elf.Sym64{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Shndx: uint16(section), Value: at, Size: size}, name})
	}
	for _, v := range definitions {
		definition, _ := v.Type.(*btf.Struct) // see defined
		size := definition.Size
		data(v.Name, 4, uint64(list.Size), uint64(size))
		list.Vars = append(list.Vars, btf.VarSecinfo{Type: v, Offset: list.Size, Size: size})
		list.Size += size
	}
	data("limit", 5, 0, 4)
	variables.Vars = []btf.VarSecinfo{{Type: &btf.Var{Name: "limit", Type: &btf.Const{Type: limit}, Linkage: btf.GlobalVar}, Size: 4}}
	own, err := btf.NewBuilder([]btf.Type{list, variables}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	types, err := own.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		tb.Fatal(err)
	}
	helper := []byte{0x85, 0, 0, 0, byte(asm.FnMapLookupElem), 0, 0, 0}
	content := func(name string, flags elf.SectionFlag, content []byte) written {
		return written{name: name, kind: elf.SHT_PROGBITS, flags: flags, content: content}
	}
	debug := content(".debug_info", 0, make([]byte, 8))
	debug.relocations = []elf.Rel64{{Info: elf.R_INFO(1, 2)}}
	return object(symbols,
		code("tracepoint/syscalls/sys_enter_kill", []elf.Rel64{{Info: elf.R_INFO(3, loadRelocation)}}, slices.Concat(load, helper, exit, exit)...),
		content(mapsSection, elf.SHF_ALLOC|elf.SHF_WRITE, make([]byte, list.Size)),
		content(".rodata", elf.SHF_ALLOC, []byte{1, 2, 3, 4}),
		content("license", elf.SHF_ALLOC|elf.SHF_WRITE, []byte("GPL\x00")),
		content(".BTF", 0, types), debug,
	)
}

// counting is an object with one map.
func counting(tb testing.TB) []byte {
	tb.Helper()
	return assembled(tb, defined("counts_of_f", ebpf.Hash, true, number, number))
}

// The object of these tests is read as one of a compiler.
func TestAssembled(t *testing.T) {
	o, err := Read(counting(t))
	if err != nil || o.Unknown != "" || len(o.Problems()) > 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	if want := (Map{"counts_of_f", "hash", uint32(ebpf.Hash), 4, 4, 8, true, false, false}); !slices.Equal(o.Maps, []Map{want}) {
		t.Errorf("maps %+v", o.Maps)
	}
	if len(o.Globals) != 1 || o.Globals[0].Name != "limit" || !o.Globals[0].Constant() || o.License != "GPL" || !o.BTF || !slices.Equal(o.Helpers, []string{"bpf_map_lookup_elem"}) {
		t.Errorf("%+v", o)
	}
	if !slices.Equal(o.MapTypes, []string{"array", "hash"}) {
		t.Errorf("types of maps %q", o.MapTypes)
	}
}

// What the daemon gets lacks the maps that it can't create. The others cover the section: the loader of the daemon in Go reads
// them one after another, and refuses other bytes.
func TestAdaptRemovedMaps(t *testing.T) {
	first, last := defined("first", ebpf.ArrayOfMaps, false, number, number), defined("last", ebpf.HashOfMaps, false, number, number)
	for name, maps := range map[string][]*btf.Var{
		"none":      {defined("counts_of_f", ebpf.Hash, false, number, number)},
		"the last":  {defined("counts_of_f", ebpf.Hash, false, number, number), first, last},
		"the first": {first, defined("counts_of_f", ebpf.Hash, false, number, number)},
		"between":   {defined("counts_of_f", ebpf.Hash, false, number, number), first, defined("other", ebpf.Array, false, number, number)},
	} {
		adapted, err := Adapt(assembled(t, maps...), withoutTypes(nil))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(adapted.Content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if spec.Maps["counts_of_f"] == nil || spec.Maps["first"] != nil || spec.Maps["last"] != nil {
			t.Errorf("%s: %v", name, spec.Maps)
		}
		types, err := btf.LoadSpecFromReader(bytes.NewReader(adapted.Content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var section *btf.Datasec
		if err := types.TypeByName(mapsSection, &section); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end := uint32(0)
		for _, v := range section.Vars {
			if v.Offset != end {
				t.Errorf("%s: nothing is at %d", name, end)
			}
			end = v.Offset + v.Size
		}
		if end != section.Size {
			t.Errorf("%s: the maps end at %d of %d", name, end, section.Size)
		}
	}
}

// What the daemon gets has no types for global variables that the kernel can't print. The daemon in Go would give them to the
// kernel.
func TestAdaptUnprintableVariables(t *testing.T) {
	for name, c := range map[string]struct {
		limit btf.Type
		typed bool
	}{"usual": {nest(40, 3), true}, "unions": {nest(120, 3), false}} {
		adapted, err := Adapt(assembledWith(t, c.limit, defined("counts_of_f", ebpf.Hash, false, number, number)), withoutTypes(nil))
		if err != nil || len(adapted.Unusable) > 0 {
			t.Fatalf("%s: %+v, %v", name, adapted, err)
		}
		types, err := btf.LoadSpecFromReader(bytes.NewReader(adapted.Content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var section *btf.Datasec
		if err := types.TypeByName(".rodata", &section); (err == nil) != c.typed {
			t.Errorf("%s: .rodata has types: %v, %v", name, section, err)
		}
		if o, err := Read(adapted.Content); err != nil || len(o.Globals) != 1 || o.Globals[0].Name != "limit" {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

// What the daemon gets has no types for a map that the kernel can't print, and everything else as it was.
func TestAdaptUnprintable(t *testing.T) {
	content := assembled(t, defined("usual", ebpf.Hash, false, number, nest(40, 3)), defined("unions", ebpf.Hash, true, number, nest(120, 3)))
	o, err := Read(content)
	if err != nil || len(o.Maps) != 2 || !o.Maps[0].Unprintable || o.Maps[1].Unprintable {
		t.Fatalf("%+v, %v", o, err)
	}
	const want = "its map unions has more than 65536 numbers in a key or a value, so nodes create it without types, and it can't be read as text"
	if got := o.Remarks(); !slices.Equal(got, []string{want}) {
		t.Errorf("remarks %q", got)
	}
	adapted, err := Adapt(content, withoutTypes(nil))
	if err != nil || len(adapted.Unusable) > 0 {
		t.Fatalf("%+v, %v", adapted, err)
	}
	f, err := parse(adapted.Content)
	if err != nil {
		t.Fatal(err)
	}
	a := &adaption{file: f}
	if err := a.readTypes(adapted.Content); err != nil {
		t.Fatal(err)
	}
	found, err := a.definitions()
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, d := range found {
		if typed := d.name == "usual"; (d.key != nil) != typed || (d.value != nil) != typed || d.keySize != 4 || d.valueSize != 4 || d.entries != 8 || (d.pinning != 0) == typed {
			t.Errorf("%+v", d)
		}
	}
	same, err := Adapt(counting(t), withoutTypes(nil))
	stripped, failed := Strip(counting(t))
	if err != nil || failed != nil || string(same.Content) != string(stripped) {
		t.Errorf("an object with usual maps was changed: %v, %v", err, failed)
	}
}
