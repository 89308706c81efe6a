// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// withoutTypes is a kernel with nothing but a version.
func withoutTypes(config map[string]string) *Kernel {
	return &Kernel{
		Version: 6<<16 | 12<<8 | 3,
		Types:   func() (*btf.Spec, error) { return nil, errors.New("no types here") },
		Config:  func() (map[string]string, error) { return config, nil },
	}
}

// probes returns an object from the parser's own tests, with programs of a type that bpfman has.
func probes(tb testing.TB, name string) []byte {
	tb.Helper()
	return bytes.ReplaceAll(parsersOwn(tb, name), []byte("socket"), []byte("kprobe"))
}

// Every object is accepted, the result is always the same, and has only programs that the loader recognizes.
func TestAdapt(t *testing.T) {
	for name, content := range everyObject(t) {
		object, err := Read(content)
		adapted, failed := Adapt(content, withoutTypes(nil))
		if err != nil {
			if failed == nil {
				t.Errorf("%s: accepted, although it can't be read: %v", name, err)
			}
			continue
		}
		if failed != nil {
			t.Logf("%s: %v", name, failed)
			if strings.HasSuffix(name, ".o") {
				t.Error("refused")
			}
			continue
		}
		again, err := Adapt(content, withoutTypes(nil))
		if err != nil || !bytes.Equal(again.Content, adapted.Content) {
			t.Errorf("%s: another result for the same object: %v", name, err)
		}
		f, err := parse(adapted.Content)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		programs, _ := f.functions() // none, if bpfman has a kind for none
		for _, p := range object.Programs {
			i := slices.IndexFunc(programs, func(q Program) bool { return q.Name == p.Name })
			if usable := adapted.Unusable[p.Name] == ""; usable && (i < 0 || loaderName(programs[i].Section) != programs[i].Section) {
				t.Errorf("%s: the loader doesn't find %s in section %s", name, p.Name, p.Section)
			}
		}
	}
}

func TestAdaptedConfiguration(t *testing.T) {
	content := probes(t, "kconfig-el.elf")
	adapted, err := Adapt(content, withoutTypes(map[string]string{"CONFIG_HZ": "250", "CONFIG_BPF_SYSCALL": "y", "CONFIG_DEFAULT_HOSTNAME": `"node"`}))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(adapted.Content))
	if err != nil {
		t.Fatal(err)
	}
	values := spec.Maps[kconfigData]
	if values == nil || spec.Maps[kconfigSection] != nil {
		t.Fatalf("maps %v instead of %s", spec.Maps, kconfigData)
	}
	var want []byte
	for _, value := range []uint64{6<<16 | 12<<8 | 3, 250, 1} {
		want = binary.NativeEndian.AppendUint64(want, value)
	}
	want = append(want, 0) // a text of one byte, which is its end
	data, _ := values.Contents[0].Value.([]byte)
	if !adapted.ForKernel || binary.NativeEndian.Uint16([]byte{1, 0}) == 1 && !bytes.Equal(data, want) {
		t.Errorf("for the kernel: %v, values %x, want %x", adapted.ForKernel, data, want)
	}
	if got := adapted.Unusable["kconfig"]; len(adapted.Unusable) != 1 || got != `it uses the external "LINUX_HAS_SYSCALL_WRAPPER": no types here` {
		t.Errorf("unusable %q", adapted.Unusable)
	}
}

// What needs the kernel's types can't be used without them, and doesn't prevent the rest from being loaded.
func TestUnusable(t *testing.T) {
	for name, want := range map[string]string{
		"kfunc-el.elf":                  "no types here",
		"ksym-el.elf":                   "CAP_SYSLOG",
		"struct_ops-el.elf":             "bpfman has no kind for programs of type \"struct_ops\"",
		"../btf/testdata/relocs-el.elf": "it has CO-RE relocations, which need the kernel's types: no types here",
	} {
		adapted, err := Adapt(probes(t, name), withoutTypes(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(strings.Join(slices.Collect(maps.Values(adapted.Unusable)), "\n"), want) {
			t.Errorf("%s: unusable %q, want %q", name, adapted.Unusable, want)
		}
	}
}

// After the relocations were applied, none is left, and nothing in the code refers to the object's own types.
func TestCORE(t *testing.T) {
	content := probes(t, "../btf/testdata/relocs_read-el.elf")
	target, err := btf.LoadSpecFromReader(bytes.NewReader(parsersOwn(t, "../btf/testdata/relocs_read_tgt-el.elf")))
	if err != nil {
		t.Fatal(err)
	}
	adapted, err := Adapt(content, &Kernel{Types: func() (*btf.Spec, error) { return target, nil }})
	if err != nil {
		t.Fatal(err)
	}
	before, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	after, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(adapted.Content))
	if err != nil {
		t.Fatal(err)
	}
	var changed int
	for name, program := range after.Programs {
		for i, instruction := range program.Instructions {
			if btf.CORERelocationMetadata(&instruction) != nil {
				t.Errorf("%s: instruction %d still has a relocation", name, i)
			}
			was := before.Programs[name].Instructions[i]
			if was.Offset == instruction.Offset && was.Constant == instruction.Constant {
				continue
			}
			changed++
			if btf.CORERelocationMetadata(&was) == nil {
				t.Errorf("%s: instruction %d changed from %v to %v without a relocation", name, i, was, instruction)
			}
		}
	}
	if changed == 0 || len(adapted.Unusable) > 0 {
		t.Errorf("%d instructions changed, unusable %q", changed, adapted.Unusable)
	}
}

func TestLoaderName(t *testing.T) {
	for section, want := range map[string]string{
		"xdp": "xdp", "xdp/lo": "xdp", "xdp_prog": "xdp", "xdp.frags/eth0": "xdp.frags", "xdp/devmap": "",
		"tc": "classifier/tc", "tcx/ingress": "classifier/tcx/ingress", "classifier/x": "classifier/x",
		"kprobe.multi/tcp_*": "kprobe/kprobe.multi/tcp_*", "ksyscall/kill": "kprobe/ksyscall/kill", "kretsyscall/kill": "kretprobe/kretsyscall/kill",
		"uretprobe.multi.s/x": "uretprobe.s/uretprobe.multi.s/x", "fentry.s/f": "fentry.s/f", "iter/task": "", "tp_btf/sched_switch": "",
	} {
		if got := loaderName(section); got != want {
			t.Errorf("%s: %q, want %q", section, got, want)
		}
	}
}

func TestKernelVersion(t *testing.T) {
	for build, want := range map[[2]string]uint32{
		{"6.1.0-13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)"}: 6<<16 | 1<<8 | 55,
		{"5.15.0-91-generic", "#101-Ubuntu SMP"}:                                  5<<16 | 15<<8,
		{"6.12-rc1", "#1"}:                                                        6<<16 | 12<<8,
		{"4.19.325", "#1"}:                                                        4<<16 | 19<<8 | 255, // the kernel's own macro has this limit
	} {
		if got, err := kernelVersion(build[0], build[1]); err != nil || got != want {
			t.Errorf("%q: %#x, want %#x: %v", build, got, want, err)
		}
	}
	if got, err := kernelVersion("next", ""); err == nil {
		t.Errorf("a release without a number is version %#x", got)
	}
}

// written is a section of an object that a test writes. Sections have the indexes from 3 on.
type written struct {
	name        string
	kind        elf.SectionType
	flags       elf.SectionFlag
	content     []byte
	relocations []elf.Rel64
}

// object returns an object with sections, and with symbols from number 1 on.
func object(symbols []symbol, sections ...written) []byte {
	order := binary.LittleEndian
	texts, table := []byte{0}, make([]byte, symbolSize)
	text := func(name string) uint32 {
		texts = append(append(texts, name...), 0)
		return uint32(len(texts) - len(name) - 1)
	}
	for _, y := range symbols {
		y.Name = text(y.name)
		table, _ = binary.Append(table, order, y.Sym64)
	}
	all := []written{{}, {name: ".strtab", kind: elf.SHT_STRTAB}, {name: ".symtab", kind: elf.SHT_SYMTAB, content: table}}
	all = append(all, sections...)
	var headers, relocations []elf.Section64
	for i, s := range all {
		headers = append(headers, elf.Section64{Name: text(s.name), Type: uint32(s.kind), Flags: uint64(s.flags), Link: 1, Entsize: symbolSize})
		if s.relocations != nil {
			entries, _ := binary.Append(nil, order, s.relocations)
			all = append(all, written{content: entries})
			relocations = append(relocations, elf.Section64{Name: text(".rel" + s.name), Type: uint32(elf.SHT_REL), Link: 2, Info: uint32(i), Entsize: relSize})
		}
	}
	headers = append(headers, relocations...)
	all[1].content = texts
	content := bytes.Repeat([]byte{0}, headerSize)
	for i, s := range all {
		headers[i].Off, headers[i].Size, headers[i].Addralign = uint64(len(content)), uint64(len(s.content)), instructionSize
		content = aligned(append(content, s.content...), instructionSize)
	}
	header := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: 1, Shoff: uint64(len(content)), Ehsize: headerSize,
		Shentsize: sectionSize, Shnum: uint16(len(headers)), Shstrndx: 1,
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	content, _ = binary.Append(content, order, headers)
	_, _ = binary.Encode(content, order, header)
	return content
}

// code returns a section with instructions.
func code(name string, relocations []elf.Rel64, instructions ...byte) written {
	return written{name, elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, instructions, relocations}
}

// functionSymbol returns the symbol of a function.
func functionSymbol(name string, section int, at, instructions uint64) symbol {
	return symbol{elf.Sym64{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: uint16(section), Value: at * instructionSize, Size: instructions * instructionSize}, name}
}

// hostile returns an object with as many functions, and with as many instructions as it has. Each instruction refers
// to an external function that doesn't exist, and the last one of each function to the function before.
func hostile(functions, instructions int) []byte {
	symbols, relocations := []symbol{{name: "absent"}}, make([]elf.Rel64, 0, instructions)
	each := uint64(instructions / functions)
	for n := range uint64(functions) {
		symbols = append(symbols, functionSymbol(fmt.Sprintf("f%d", n), 3, n*each, each))
	}
	for n := range uint64(instructions) {
		target := uint64(1)
		if function := n / each; function > 0 && (n+1)%each == 0 {
			target = 1 + function // the one before
		}
		relocations = append(relocations, elf.Rel64{Off: n * instructionSize, Info: elf.R_INFO(uint32(target), callRelocation)})
	}
	return object(symbols, code("kprobe", relocations, bytes.Repeat(calls, instructions)...))
}

// The time doesn't grow with the product of functions and instructions. It would be hours otherwise.
func TestHostile(t *testing.T) {
	adapted, err := Adapt(hostile(maxFunctions, maxFunctions*128), withoutTypes(nil))
	if err != nil || len(adapted.Unusable) != maxFunctions {
		t.Errorf("%d unusable functions, %v", len(adapted.Unusable), err)
	}
	if _, err := Adapt(hostile(maxFunctions+1, maxFunctions+1), withoutTypes(nil)); err == nil || err.Error() != "it has more than 4096 functions" {
		t.Error(err)
	}
}

// A failure makes those unusable that refer to the function with it, also in a circle, and no other.
func TestCallGraph(t *testing.T) {
	content := hostile(4, 16)
	f, err := parse(content)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.functions(); err != nil {
		t.Fatal(err)
	}
	for instruction, want := range map[int]string{0: "f0 f1 f2 f3", 4: "f1 f2 f3", 15: "f3", 16: ""} {
		var got []string
		f.callGraph().fail(place{3, uint64(instruction * instructionSize)}, func(f function) { got = append(got, f.programs...) })
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("instruction %d fails: %q, want %s", instruction, got, want)
		}
	}
	f.symbols[3].Value -= instructionSize
	if _, err := f.functions(); err == nil || err.Error() != `two of its functions in section "kprobe" overlap` {
		t.Error(err)
	}
	f.symbols[3].Value -= 3 * instructionSize // the same as the one before
	if _, err := f.functions(); err != nil || len(f.code) != 3 || len(f.code[0].programs) != 2 {
		t.Errorf("%+v, %v", f.code, err)
	}
}

// FuzzAdapt checks that the result is an object that calls no functions of the kernel which the image's object doesn't
// call, because policies know only those. The result has nothing else that the loader can't load.
func FuzzAdapt(f *testing.F) {
	types, err := btf.LoadSpecFromReader(bytes.NewReader(parsersOwn(f, "../btf/testdata/relocs_read_tgt-el.elf")))
	if err != nil {
		f.Fatal(err)
	}
	kernel := withoutTypes(map[string]string{"CONFIG_HZ": "250"})
	kernel.Types = func() (*btf.Spec, error) { return types, nil }
	addSeeds(f)
	f.Add(probes(f, "../btf/testdata/relocs_read-el.elf"))
	f.Add(linkObject(slices.Concat(calls, load, exit), elf.Rel64{Info: elf.R_INFO(toLabel, callRelocation)}, elf.Rel64{Off: instructionSize, Info: elf.R_INFO(toVariable, loadRelocation)}))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, kernel := range []*Kernel{kernel, withoutTypes(nil)} {
			adapted, err := Adapt(content, kernel)
			if err != nil {
				return
			}
			after, err := parse(adapted.Content)
			if err != nil {
				t.Fatalf("the result isn't an object: %v", err)
			}
			before, err := parse(content)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Adapt(adapted.Content, kernel); err == nil {
				for name, why := range again.Unusable {
					if adapted.Unusable[name] == "" {
						t.Errorf("the result's %s can't be loaded: %s", name, why)
					}
				}
			}
			if added := beyond(before.calls(), after.calls()); len(added) > 0 {
				t.Errorf("the result calls %q", added)
			}
		}
	})
}

// The daemon gets definitions of maps as libbpf would pass them to the kernel. Maps that it can't create are gone, and only
// the programs that use them can't be loaded.
func TestMapDefinitions(t *testing.T) {
	content := compiled(t, "maps_for_libbpf.o")
	adapted, err := Adapt(content, withoutTypes(nil))
	if err != nil {
		t.Fatal(err)
	}
	const reason = `it uses the map "nested", a map of maps, which bpfman's daemon v0.6 can't create: leave the function out, or load it without bpfman`
	if want := map[string]string{"use_map_of_maps": reason}; !maps.Equal(adapted.Unusable, want) {
		t.Errorf("unusable %q, want %q", adapted.Unusable, want)
	}
	read, err := Read(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(read.Remarks(), "\n"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "its map stacks_without_size has no max_entries, so nodes create it with 10240") ||
		!strings.Contains(got, "its map filled_programs has content, which the daemon doesn't write") {
		t.Errorf("remarks %s", got)
	}
	for _, p := range read.Programs {
		if p.Unsupported != adapted.Unusable[p.Name] {
			t.Errorf("%s is unsupported because %q", p.Name, p.Unsupported)
		}
	}
	f, err := parse(adapted.Content)
	if err != nil {
		t.Fatal(err)
	}
	a := &adaption{file: f}
	if err := a.readTypes(adapted.Content); err != nil {
		t.Fatal(err)
	}
	defined, err := a.definitions()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range defined {
		got = append(got, fmt.Sprintf("%s: %s keys %d %t values %d %t entries %d", d.name, d.kind, d.keySize, d.key != nil, d.valueSize, d.value != nil, d.entries))
	}
	slices.Sort(got)
	if want := []string{
		"by_enum: Array keys 4 false values 8 false entries 2",
		"filled_programs: ProgramArray keys 4 false values 4 false entries 1",
		"half_typed: PerCPUArray keys 4 false values 8 false entries 1",
		"hash_without_size: Hash keys 4 true values 8 true entries 10240",
		"kill_stats_map: PerCPUArray keys 4 true values 8 true entries 1",
		"stacks_without_size: StackTrace keys 4 false values 1016 false entries 10240",
		"typed_perf: PerfEventArray keys 4 false values 4 false entries 0",
		"typed_programs: ProgramArray keys 4 false values 4 false entries 1",
		"typed_ring: RingBuf keys 0 false values 0 false entries 4096",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Maps in the older form are changed in place.
func TestOldMapDefinitions(t *testing.T) {
	f := &file{order: binary.LittleEndian, sections: []section{{data: make([]byte, 4*symbolSize)}, {name: "maps/events", data: make([]byte, legacySize)}}, symbols: []symbol{
		{}, {elf.Sym64{Shndx: 1, Size: legacySize}, "events"}, {elf.Sym64{Shndx: 1, Value: 4, Size: legacySize}, "beyond"}, {elf.Sym64{Shndx: 1, Size: 4}, "short"},
	}}
	f.sections[1].data[0] = byte(ebpf.PerfEventArray)
	a := &adaption{file: f, unusable: map[string]string{}, problems: map[string]problem.Reason{}, removed: map[string]bool{}}
	if err := a.fitMaps(); err != nil {
		t.Fatal(err)
	}
	if got := f.sections[1].data; !bytes.Equal(got[:12], []byte{4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0}) {
		t.Errorf("definition %v", got)
	}
	if !maps.Equal(a.removed, map[string]bool{"beyond": true, "short": true}) {
		t.Errorf("removed %v", a.removed)
	}
}

// Where the daemon's loader pins a map that is defined in the older form. It takes what a definition lacks as 0, and has no
// other numbers than 0 and 1.
func TestOldMapsThatArePinned(t *testing.T) {
	for _, c := range []struct {
		size   int
		number []byte
		pinned bool
		writes []byte
	}{
		{20, nil, false, nil},
		{24, nil, false, nil},
		{28, []byte{0, 0, 0, 0}, false, []byte{0, 0, 0, 0}},
		{28, []byte{1, 0, 0, 0}, true, []byte{1, 0, 0, 0}},
		{36, []byte{1, 0, 0, 0}, true, []byte{1, 0, 0, 0}},
		{25, []byte{1}, true, []byte{1}},
		{28, []byte{2, 0, 0, 0}, false, []byte{0, 0, 0, 0}}, // iproute2's PIN_GLOBAL_NS
		{28, []byte{1, 1, 0, 0}, false, []byte{0, 0, 0, 0}},
		{27, []byte{1, 0, 9}, false, []byte{0, 0, 0}},
	} {
		content, _ := binary.Append(nil, binary.LittleEndian, []uint32{uint32(ebpf.Array), 4, 4, 1, 0, 7})
		content = append(content, c.number...)
		content = append(content, make([]byte, max(0, c.size-len(content)))...)[:c.size]
		o := object([]symbol{
			functionSymbol("f", 3, 0, 1), {elf.Sym64{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Shndx: 4, Size: uint64(c.size)}, "m"},
		}, code("kprobe", nil, exit...), written{name: "maps", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, content: content})
		read, err := Read(o)
		if err != nil || len(read.Maps) != 1 || read.Maps[0].PinnedByName != c.pinned {
			t.Errorf("%v of %d bytes: %+v, %v", c.number, c.size, read, err)
		}
		adapted, err := Adapt(o, &Kernel{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(adapted.Content))
		if err != nil {
			t.Fatal(err)
		}
		written, err := f.Section("maps").Data()
		if err != nil || len(written) != c.size || !bytes.Equal(written[min(24, c.size):min(28, c.size)], c.writes) {
			t.Errorf("%v of %d bytes: %v, %v, want %v", c.number, c.size, written, err, c.writes)
		}
	}
}

func TestTypesFit(t *testing.T) {
	number, choice, text := &btf.Int{Size: 4}, &btf.Enum{Size: 4}, &btf.Struct{Size: 8}
	for name, c := range map[string]struct {
		definition definition
		want       bool
	}{
		"none":                 {definition{kind: ebpf.Hash, keySize: 4, valueSize: 8}, true},
		"both":                 {definition{kind: ebpf.Hash, keySize: 4, key: choice, value: text}, true},
		"only the key's":       {definition{kind: ebpf.Hash, keySize: 4, key: number}, false},
		"only the value's":     {definition{kind: ebpf.Hash, keySize: 4, value: text}, false},
		"a queue's value":      {definition{kind: ebpf.Queue, value: text}, true},
		"an array by enum":     {definition{kind: ebpf.Array, keySize: 4, key: choice, value: text}, false},
		"an array by number":   {definition{kind: ebpf.Array, keySize: 4, key: &btf.Typedef{Type: number}, value: text}, true},
		"a trie by structure":  {definition{kind: ebpf.LPMTrie, keySize: 8, key: text, value: text}, true},
		"a trie by an integer": {definition{kind: ebpf.LPMTrie, keySize: 4, key: number, value: text}, false},
	} {
		if got := c.definition.typesFit(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// nest returns a type of four bytes whose unions have as many members, nested in each other.
func nest(members, depth int) btf.Type {
	var t btf.Type = &btf.Int{Name: "u32", Size: 4}
	for range depth {
		u := &btf.Union{Size: 4}
		for n := range members {
			u.Members = append(u.Members, btf.Member{Name: fmt.Sprintf("m%d", n), Type: t})
		}
		t = u
	}
	return t
}

// The kernel prints every value of an element, and nothing ends its reader meanwhile.
func TestCountValues(t *testing.T) {
	number := &btf.Int{Size: 4}
	inItself := &btf.Struct{}
	inItself.Members = []btf.Member{{Type: &btf.Array{Type: inItself, Nelems: 1}}}
	pair := &btf.Struct{Size: 8, Members: []btf.Member{{Type: number}, {Type: &btf.Pointer{Target: nest(1000, 4)}}}}
	for name, c := range map[string]struct {
		t    btf.Type
		want uint64
	}{
		"none":                        {nil, 0},
		"a number":                    {&btf.Const{Type: &btf.Typedef{Type: number}}, 1},
		"a structure":                 {pair, 2},
		"an array of structures":      {&btf.Array{Type: pair, Nelems: 100}, 200},
		"nothing":                     {&btf.Struct{}, 1},
		"a union":                     {nest(3, 2), 9},
		"nested unions":               {nest(40, 3), 64000},
		"nested unions with more":     {nest(120, 3), maxPrinted + 1},
		"as many values as can't be":  {nest(1000, 4), maxPrinted + 1},
		"an array of 64 KiB":          {&btf.Array{Type: &btf.Int{Size: 1}, Nelems: maxPrinted}, maxPrinted},
		"a larger array":              {&btf.Array{Type: &btf.Int{Size: 1}, Nelems: maxPrinted + 1}, maxPrinted + 1},
		"an array without a size":     {&btf.Array{Type: &btf.Struct{}, Nelems: 1<<32 - 1}, maxPrinted + 1},
		"an array of arrays":          {&btf.Array{Type: &btf.Array{Type: number, Nelems: 1<<32 - 1}, Nelems: 1<<32 - 1}, maxPrinted + 1},
		"a structure in itself":       {inItself, maxPrinted + 1},
		"structures that nest deeply": {nest(1, maxNested+2), maxPrinted + 1},
		"structures that nest":        {nest(1, maxNested), 1},
		"the variables of a section":  {&btf.Datasec{Vars: []btf.VarSecinfo{{Type: &btf.Var{Type: nest(120, 3)}}}}, maxPrinted + 1},
		"a variable":                  {&btf.Var{Type: pair}, 2},
	} {
		// More than the kernel may print is enough to know.
		if got := (&values{}).count(c.t); got != c.want && (c.want <= maxPrinted || got < c.want) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Sections whose variables have the same large type are counted once.
func TestCountSharedType(t *testing.T) {
	shared := &btf.Struct{Name: "shared"}
	for range 1 << 16 {
		shared.Members = append(shared.Members, btf.Member{Type: &btf.Int{Size: 4}})
	}
	var printed values
	for range 1 << 14 {
		section := &btf.Datasec{Name: ".data", Size: 1 << 20, Vars: []btf.VarSecinfo{{Type: &btf.Var{Type: shared}}}}
		if got := printed.count(section); got != 1<<16 {
			t.Fatal(got)
		}
	}
	if len(printed.counted) > 1<<16+1<<15+1 {
		t.Errorf("%d types were counted", len(printed.counted))
	}
}

// A map whose elements the kernel can't print in a moment has no types, and stays as it is otherwise.
func TestUnprintableMaps(t *testing.T) {
	for name, c := range map[string]struct {
		key, value btf.Type
		typed      bool
	}{
		"usual":         {&btf.Int{Size: 4}, nest(40, 3), true},
		"a large value": {&btf.Int{Size: 4}, nest(120, 3), false},
		"a large key":   {nest(120, 3), &btf.Int{Size: 4}, false},
	} {
		d := definition{kind: ebpf.Hash, keySize: 4, valueSize: 4, entries: 1, key: c.key, value: c.value}
		if why := d.fit(&values{}); why != "" || (d.key != nil) != c.typed || (d.value != nil) != c.typed || d.keySize != 4 || d.valueSize != 4 || d.entries != 1 {
			t.Errorf("%s: %q, %+v", name, why, d)
		}
	}
}

// The loader refuses licenses that don't end with their section, and can't create the maps of empty sections of variables.
func TestAdaptSections(t *testing.T) {
	for declared, want := range map[string]string{"GPL\x00": "GPL\x00", "GPL": "GPL\x00", "GPL\x00\x00\x00\x00": "GPL\x00", "\x00": "none\x00", "": "none\x00"} {
		adapted, err := Adapt(object([]symbol{functionSymbol("f", 3, 0, 1)}, code("kprobe", nil, exit...),
			written{name: "license", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, content: []byte(declared)},
			written{name: ".data", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE},
		), withoutTypes(nil))
		if err != nil {
			t.Fatal(err)
		}
		f, err := parse(adapted.Content)
		if err != nil {
			t.Fatal(err)
		}
		if index, _ := f.section("license"); string(f.sections[index].data) != want || f.has(".data") {
			t.Errorf("license %q of %q, sections %v", f.sections[index].data, declared, f.sections)
		}
	}
}

// A variable of the kernel can have a type, also a constant one.
func TestTypedVariableOfKernel(t *testing.T) {
	variable := &btf.Var{Name: "runqueues", Type: &btf.Const{Type: &btf.Struct{Name: "rq", Size: 8}}, Linkage: btf.ExternVar}
	untyped := &btf.Var{Name: "bpf_prog_fops", Type: &btf.Const{Type: (*btf.Void)(nil)}, Linkage: btf.ExternVar}
	own, err := btf.NewBuilder([]btf.Type{&btf.Datasec{Name: ksymsSection, Vars: []btf.VarSecinfo{{Type: variable}, {Type: untyped}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := own.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		t.Fatal(err)
	}
	adapted, err := Adapt(object([]symbol{functionSymbol("f", 3, 0, 3), functionSymbol("g", 3, 3, 3), {name: "runqueues"}, {name: "bpf_prog_fops"}},
		code("kprobe", []elf.Rel64{{Info: elf.R_INFO(3, loadRelocation)}, {Off: 3 * instructionSize, Info: elf.R_INFO(4, loadRelocation)}}, slices.Concat(load, exit, load, exit)...),
		written{name: ".BTF", kind: elf.SHT_PROGBITS, content: types},
	), &Kernel{Types: func() (*btf.Spec, error) {
		kernel, err := btf.NewBuilder([]btf.Type{&btf.Var{Name: "runqueues", Type: &btf.Struct{Name: "rq", Size: 8}}}, nil)
		if err != nil {
			return nil, err
		}
		return kernel.Spec()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `it uses the external "bpf_prog_fops": its address is needed, which only processes with CAP_SYSLOG can read`; len(adapted.Unusable) != 1 || adapted.Unusable["g"] != want {
		t.Errorf("unusable %q", adapted.Unusable)
	}
	f, err := parse(adapted.Content)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.sections[3].data[:8]; !bytes.Equal(got, []byte{0x18, loadsKernelVariable<<4 | 1, 0, 0, 1, 0, 0, 0}) || len(f.relocations(3)) != 1 {
		t.Errorf("instruction %x, relocations %v", got, f.relocations(3))
	}
}

// The loader refuses a section of functions that others call if they aren't all of it, or if two are the same.
func TestFunctionsOfText(t *testing.T) {
	for name, c := range map[string]struct {
		symbols []symbol
		added   int
		want    string
	}{
		"all":       {[]symbol{functionSymbol("a", 4, 0, 1), functionSymbol("b", 4, 1, 2)}, 0, "<nil>"},
		"none":      {nil, 1, "<nil>"},
		"a gap":     {[]symbol{functionSymbol("a", 4, 0, 1), functionSymbol("b", 4, 2, 1)}, 1, "<nil>"},
		"both ends": {[]symbol{functionSymbol("a", 4, 1, 1)}, 2, "<nil>"},
		"two names": {[]symbol{functionSymbol("a", 4, 0, 3), functionSymbol("b", 4, 0, 3)}, 0, `two of its functions in section ".text" overlap`},
	} {
		adapted, err := Adapt(object(append(c.symbols, functionSymbol("f", 3, 0, 1)), code("kprobe", nil, exit...), code(".text", nil, slices.Concat(exit, exit, exit)...)), withoutTypes(nil))
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil {
			continue
		}
		f, err := parse(adapted.Content)
		if err != nil {
			t.Fatal(err)
		}
		var code uint64
		for _, y := range f.symbols {
			if y.Shndx == 4 {
				code += y.Size
			}
		}
		if code != 3*instructionSize || len(f.symbols) != 2+len(c.symbols)+c.added {
			t.Errorf("%s: symbols %v", name, f.symbols)
		}
	}
}
