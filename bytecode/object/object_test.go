// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// objects is the directory with the output of `make bytecode`.
const objects = "../../bin/bytecode"

func compiled(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(objects, name))
	if err != nil {
		prerequisite.Missing(tb, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return content
}

// parsersOwn returns an object from the parser's own tests, in the module cache.
func parsersOwn(tb testing.TB, name string) []byte {
	tb.Helper()
	directory, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/ebpf").Output()
	if err != nil {
		tb.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), "testdata", name))
	if err != nil {
		tb.Skip("modules are without their tests' data")
	}
	return content
}

var update = flag.Bool("update", false, "Write the golden files.")

func TestRemarks(t *testing.T) {
	if got := (&Object{License: "GPL", BTF: true}).Remarks(); got != nil {
		t.Errorf("remarks %q about a complete object", got)
	}
	got := (&Object{}).Remarks()
	if len(got) != 2 || !strings.HasPrefix(got[0], "it declares no license") || !strings.HasPrefix(got[1], "it has no BTF") {
		t.Errorf("remarks %q", got)
	}
}

func TestRead(t *testing.T) {
	for _, name := range []string{"go-app-counter.o", "globals.o", "map_types.o", "pinned.o"} {
		t.Run(name, func(t *testing.T) {
			object, err := Read(compiled(t, name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(object, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || string(want) != string(text)+"\n" {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	described, err := Describe(counting(t), withoutTypes(nil))
	if err != nil {
		t.Fatal(err)
	}
	facts := described.Facts
	if facts.Size != int64(len(described.Object)) || facts.Adapted.Kernel != "" || facts.Adapted.Digest != facts.Digest || len(facts.Functions) != 2 || facts.License == "" || len(facts.Maps) != 1 || !facts.Maps[0].Pinned {
		t.Errorf("%+v", facts)
	}
	big := parsersOwn(t, "kfunc-eb.elf")
	if _, err := Describe(big, withoutTypes(nil)); err == nil || !strings.Contains(err.Error(), "it is big-endian, but ") {
		t.Error(err)
	}
}

// everyObject returns all compiled objects, and those of the parser's own tests.
func everyObject(tb testing.TB) map[string][]byte {
	tb.Helper()
	compiled(tb, "xdp_pass.o")
	return objectsHere(tb)
}

// addSeeds adds small objects to a fuzz test: assembled ones, and those of everyObject that are there.
func addSeeds(f *testing.F) {
	f.Helper()
	for _, content := range objectsHere(f) {
		if len(content) < 32<<10 {
			f.Add(content)
		}
	}
	f.Add(counting(f))
	f.Add(assembled(f, defined("usual", ebpf.Array, true, number, nest(3, 3)), defined("unions", ebpf.Hash, false, nest(120, 3), number)))
	f.Add(oldMap(ebpf.ProgramArray, elf.STT_OBJECT))
	f.Add(hostile(4, 16))
}

func objectsHere(tb testing.TB) map[string][]byte {
	tb.Helper()
	own, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/ebpf").Output()
	if err != nil {
		tb.Fatal(err)
	}
	found := map[string][]byte{}
	for _, pattern := range []string{filepath.Join(objects, "*.o"), filepath.Join(strings.TrimSpace(string(own)), "testdata", "*.elf")} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if found[filepath.Base(path)], err = os.ReadFile(path); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return found
}

// Everything that a loader reads is the same without the debug sections.
func TestStrip(t *testing.T) {
	var before, after int
	for name, content := range everyObject(t) {
		stripped, err := Strip(content)
		if err != nil {
			t.Logf("%s: %v", name, err)
			if strings.HasSuffix(name, ".o") {
				t.Error("refused")
			}
			continue
		}
		if strings.HasSuffix(name, ".o") {
			before, after = before+len(content), after+len(stripped)
		}
		again, err := Strip(stripped)
		if err != nil || !bytes.Equal(again, stripped) {
			t.Errorf("%s: it isn't the same again: %v", name, err)
		}
		kept(t, name, content, stripped)
		want, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
		got, failed := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(stripped))
		if (err == nil) != (failed == nil) {
			t.Errorf("%s: %v, %v", name, err, failed)
		}
		if err != nil || failed != nil {
			continue
		}
		same(t, name, want, got)
		readelf(t, name, stripped)
	}
	t.Logf("%d bytes before, %d after", before, after)
}

// kept checks that all sections are the same, apart from debug sections.
func kept(t *testing.T, name string, content, stripped []byte) {
	t.Helper()
	a, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	b, err := elf.NewFile(bytes.NewReader(stripped))
	if err != nil || len(a.Sections) != len(b.Sections) {
		t.Fatalf("%s: %v", name, err)
	}
	for i, s := range a.Sections {
		z := b.Sections[i]
		if strings.Contains(s.Name, ".debug_") {
			if z.SectionHeader != (elf.SectionHeader{}) {
				t.Errorf("%s: %+v", name, z.SectionHeader)
			}
			continue
		}
		header := z.SectionHeader
		header.Offset = s.Offset
		if header != s.SectionHeader {
			t.Errorf("%s: %+v, want %+v", name, header, s.SectionHeader)
		}
		if s.Type == elf.SHT_NULL || s.Type == elf.SHT_NOBITS {
			continue
		}
		x, err := s.Data()
		y, failed := z.Data()
		if err != nil || failed != nil || !bytes.Equal(x, y) {
			t.Errorf("%s: section %s differs: %v, %v", name, s.Name, err, failed)
		}
	}
}

func same(t *testing.T, name string, want, got *ebpf.CollectionSpec) {
	t.Helper()
	for program, spec := range want.Programs {
		if other := got.Programs[program]; other == nil || !reflect.DeepEqual(raw(t, spec.Instructions), raw(t, other.Instructions)) {
			t.Errorf("%s: program %s differs", name, program)
		}
	}
	for m, spec := range want.Maps {
		if other := got.Maps[m]; other == nil || other.Type != spec.Type || other.KeySize != spec.KeySize || other.ValueSize != spec.ValueSize || !reflect.DeepEqual(other.Contents, spec.Contents) {
			t.Errorf("%s: map %s differs", name, m)
		}
	}
	if len(want.Programs) != len(got.Programs) || len(want.Maps) != len(got.Maps) || len(want.Variables) != len(got.Variables) {
		t.Errorf("%s: %d programs, %d maps", name, len(got.Programs), len(got.Maps))
	}
}

// raw returns instructions as text, because they can't be encoded before relocation.
func raw(t *testing.T, instructions asm.Instructions) []string {
	t.Helper()
	var lines []string
	for i := range instructions {
		line := instructions[i].Source()
		text := ""
		if line != nil {
			text = line.String()
		}
		lines = append(lines, fmt.Sprint(instructions[i])+instructions[i].Symbol()+instructions[i].Reference()+text)
	}
	return lines
}

func readelf(t *testing.T, name string, stripped []byte) {
	t.Helper()
	if _, err := exec.LookPath("llvm-readelf"); err != nil || !strings.HasSuffix(name, ".o") {
		return
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, stripped, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "llvm-readelf", "--all", path).CombinedOutput(); err != nil || bytes.Contains(out, []byte("warning:")) || bytes.Contains(out, []byte("error:")) {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}

// The kernel gives programs the same tag, which is a hash of their instructions.
func TestStripInTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can load programs")
	}
	compared := 0
	for name, content := range everyObject(t) {
		if !strings.HasSuffix(name, ".o") {
			continue
		}
		want, err := tags(content)
		if err != nil {
			continue // it needs something that this kernel doesn't have
		}
		stripped, err := Strip(content)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tags(stripped)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v, %v", name, got, want, err)
		}
		compared += len(want)
	}
	t.Logf("%d programs", compared)
	if compared == 0 {
		t.Skip("this kernel loads none of the programs")
	}
}

func tags(content []byte) (map[string]string, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	found := map[string]string{}
	for name, program := range loaded.Programs {
		info, err := program.Info()
		if err != nil {
			return nil, err
		}
		found[name] = info.Tag
	}
	return found, nil
}

// changedObject returns an object in which change was called for each section header.
func changedObject(t *testing.T, change func(i int, s *elf.Section64)) []byte {
	t.Helper()
	content := bytes.Clone(counting(t))
	f, err := parse(content)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.sections {
		change(i, &f.sections[i].Section64)
		if i > 0 {
			if _, err := binary.Encode(content[f.header.Shoff+uint64(i)*sectionSize:], f.order, f.sections[i].Section64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return content
}

func TestReadRefuses(t *testing.T) {
	good := counting(t)
	with := func(at int, value byte) []byte {
		content := bytes.Clone(good)
		content[at] = value
		return content
	}
	// The compiler can't write such names, but an attacker can. Both the symbol and BTF have the name.
	mapNamed := func(name string) []byte {
		return assembled(t, defined(name, ebpf.Hash, true, number, number))
	}
	for message, content := range map[string][]byte{
		`its map "/run/.data/m"`:    mapNamed("/run/.data/m"),
		`its map "../links/12"`:     mapNamed("../links/12"),
		`its map "a/b"`:             mapNamed("a/b"),
		`its map "a b"`:             mapNamed("a b"),
		`its map "m\n"`:             mapNamed("m\n"),
		`its map ".."`:              mapNamed(".."),
		`its map "."`:               mapNamed("."),
		"isn't an ELF file":         []byte("not an object"),
		"isn't an ELF file, ":       []byte(elf.ELFMAG),
		"has more than 32 MiB":      make([]byte, reader.MaxObject+1),
		"isn't a 64-bit":            with(elf.EI_CLASS, 1),
		"byte order is unknown":     with(elf.EI_DATA, 3),
		"for EM_X86_64":             with(18, 62),
		"ET_DYN for":                with(16, 3),
		"its ELF header is unusual": with(0x38, 1),
		"outside of the file":       good[:len(good)-1],
		"it has 65535 sections":     append(append(bytes.Clone(good[:0x3c]), 255, 255), good[0x3e:]...),
		"has no names of sections":  with(0x3e, 2),
		// A section of zeros takes no space in the file, no matter how large it is.
		"sections have more than 64 MiB": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionType(s.Type) == elf.SHT_PROGBITS {
				s.Type, s.Size = uint32(elf.SHT_NOBITS), 3<<30
			}
		}),
		"is compressed": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionType(s.Type) == elf.SHT_PROGBITS && s.Flags == 0 {
				s.Flags = uint64(elf.SHF_COMPRESSED)
			}
		}),
		"isn't a sequence of instructions": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR != 0 {
				s.Addr = 4
			}
		}),
		"isn't an ordinary debug section": changedObject(t, func(_ int, s *elf.Section64) {
			s.Flags |= uint64(elf.SHF_WRITE)
		}),
		// The headers of debug sections, which are removed, would get the name at 0, such as .maps.
		"it has no names of sections": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionType(s.Type) == elf.SHT_STRTAB {
				s.Off, s.Size = s.Off+1, s.Size-1
			}
		}),
		"has no symbol table": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionType(s.Type) == elf.SHT_SYMTAB {
				s.Type = uint32(elf.SHT_PROGBITS)
			}
		}),
		"two sections for a symbol table": changedObject(t, func(_ int, s *elf.Section64) {
			if elf.SectionType(s.Type) == elf.SHT_REL {
				s.Type = uint32(elf.SHT_SYMTAB)
			}
		}),
		"has the alignment 3": changedObject(t, func(_ int, s *elf.Section64) { s.Addralign = 3 }),
		"linked to a section": changedObject(t, func(_ int, s *elf.Section64) { s.Link = 1 << 30 }),
		"has no programs": changedObject(t, func(_ int, s *elf.Section64) {
			s.Flags &^= uint64(elf.SHF_EXECINSTR)
		}),
		`the code in its section "tracepoint`: changedSymbols(t, elf.ST_INFO(elf.STB_GLOBAL, elf.STT_NOTYPE)),
		`has two maps "twice"`:                assembled(t, defined("twice", ebpf.Hash, false, number, number), defined("twice", ebpf.Array, false, number, number)),
	} {
		if o, err := Read(content); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%+v, %v, want %q", o, err, message)
		}
	}
}

// oldMap returns an object with a program and the map m, in the form before libbpf's.
func oldMap(kind ebpf.MapType, symbolKind elf.SymType) []byte {
	content, _ := binary.Append(nil, binary.LittleEndian, []uint32{uint32(kind), 4, 4, 1, 0})
	return object([]symbol{
		functionSymbol("f", 3, 0, 1), {elf.Sym64{Info: elf.ST_INFO(elf.STB_GLOBAL, symbolKind), Shndx: 4, Size: legacySize}, "m"},
	}, code("kprobe", nil, exit...), written{name: "maps", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, content: content})
}

// Policies get the type of each map that the daemon's loader creates: it makes a map of each symbol in a section of maps.
func TestTypesOfMaps(t *testing.T) {
	for kind, accepted := range map[elf.SymType]bool{elf.STT_OBJECT: true, elf.STT_NOTYPE: true, elf.STT_FUNC: false, elf.STT_TLS: false, elf.STT_COMMON: false, 11: false} {
		o, err := Read(oldMap(ebpf.ProgramArray, kind))
		if !accepted {
			if err == nil || err.Error() != `its map "m" isn't a variable` {
				t.Errorf("%s: %+v, %v", kind, o, err)
			}
			continue
		}
		if err != nil || !slices.Equal(o.MapTypes, []string{"prog_array"}) || o.Unknown != "" {
			t.Errorf("%s: %+v, %v", kind, o, err)
		}
	}
}

// The daemon's loader and other readers use other relocations than the usual ones differently.
func TestUnusualRelocations(t *testing.T) {
	usual := linkObject(calls, elf.Rel64{Info: elf.R_INFO(toFunction, callRelocation)})
	if _, err := Read(usual); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(s *elf.Section64)
		want   string
	}{
		"of another table":  {func(s *elf.Section64) { s.Link = 1 }, `its relocations in section ".relkprobe" are unusual`},
		"of no table":       {func(s *elf.Section64) { s.Link = 0 }, `its relocations in section ".relkprobe" are unusual`},
		"in another form":   {func(s *elf.Section64) { s.Type = uint32(elf.SHT_RELA) }, "it has a section of the unusual type SHT_RELA"}, //nolint:misspell // its name in ELF
		"that aren't whole": {func(s *elf.Section64) { s.Size-- }, `its relocations in section ".relkprobe" are unusual`},
	} {
		content := bytes.Clone(usual)
		f, err := parse(content)
		if err != nil {
			t.Fatal(err)
		}
		index, _ := f.section(".relkprobe")
		c.change(&f.sections[index].Section64)
		_, _ = binary.Encode(content[f.header.Shoff+uint64(index)*sectionSize:], f.order, f.sections[index].Section64)
		if _, err := Read(content); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// changedSymbols returns an object whose functions have symbols with other types or bindings.
func changedSymbols(t *testing.T, info byte) []byte {
	t.Helper()
	content := bytes.Clone(counting(t))
	f, err := parse(content)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.sections {
		if elf.SectionType(s.Type) != elf.SHT_SYMTAB {
			continue
		}
		for at := 0; at < len(s.data); at += symbolSize {
			if elf.ST_TYPE(s.data[at+4]) == elf.STT_FUNC {
				s.data[at+4] = info
			}
		}
	}
	return content
}

// The daemon's loader also loads a function with a local symbol, so it has to be in the
// list, and what it calls too.
func TestLocalFunctions(t *testing.T) {
	want, err := Read(counting(t))
	if err != nil {
		t.Fatal(err)
	}
	content := changedSymbols(t, elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC))
	got, err := Read(content)
	if err != nil || !reflect.DeepEqual(got.Programs, want.Programs) || !slices.Equal(got.Helpers, want.Helpers) {
		t.Errorf("%+v, %v", got, err)
	}
}

// There are programs and helpers even if the library can't read the maps.
func TestUnknown(t *testing.T) {
	content := changedObject(t, func(int, *elf.Section64) {})
	f, err := parse(content)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.sections {
		if s.name == ".BTF" {
			clear(s.data)
		}
	}
	o, err := Read(content)
	if err != nil || len(o.Programs) == 0 || o.Unknown == "" || len(o.Problems()) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
}

// FuzzRead checks that no file makes Read or Strip panic, that a stripped file reads the
// same, and that the descriptions of variables are consistent.
func FuzzRead(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		o, err := Read(content)
		stripped, failed := Strip(content)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("several lines: %q", err)
			}
			return
		}
		if failed != nil || len(o.Programs) == 0 || !slices.IsSorted(o.Helpers) {
			t.Fatalf("%+v, %v", o, failed)
		}
		again, err := Read(stripped)
		// The library reads types in random order, so it doesn't notice each malformed one each time. A policy denies what
		// is unknown.
		if err == nil {
			for _, o := range []*Object{o, again} {
				o.Needs = nil
				for i, p := range o.Programs {
					o.Programs[i] = programIn(p.Section, p.Name)
				}
			}
		}
		if err == nil && o.Unknown+again.Unknown != "" {
			for _, o := range []*Object{o, again} {
				o.Maps, o.Globals, o.MapTypes, o.Unknown = nil, nil, nil, ""
			}
		}
		if err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("%+v, %v, want %+v", again, err, o)
		}
		for _, v := range o.Globals {
			if int(v.Size) != len(v.Default) {
				t.Errorf("%s has %d bytes, and a default of %d", v.Name, v.Size, len(v.Default))
			}
			_ = v.Value(o.ByteOrder)
		}
	})
}

func TestKernelFunctions(t *testing.T) {
	got, err := Read(parsersOwn(t, "kfunc-el.elf"))
	if err != nil || !slices.Contains(got.Helpers, "kfunc:bpf_cpumask_create") {
		t.Errorf("%+v, %v", got, err)
	}
}

// Helpers have the names in this machine's linux/bpf.h, for all helpers that the library
// knows.
func TestNamesOfHelpers(t *testing.T) {
	header, err := os.ReadFile("/usr/include/linux/bpf.h")
	if err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Headers)
	}
	known := map[string]bool{}
	for f := asm.FnMapLookupElem; f <= asm.FnCgrpStorageDelete; f++ {
		known[helper(f)] = true
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\s+FN\((\w+)(?:, \d+, [^)]*)?\),?\s*\\`).FindAllStringSubmatch(string(header), -1) {
		if m[1] == "unspec" {
			continue
		}
		found++
		if !known["bpf_"+m[1]] {
			t.Errorf("bpf_%s isn't known", m[1])
		}
	}
	if found < 200 {
		t.Errorf("%d helpers in the header", found)
	}
}

func TestUnknownNames(t *testing.T) {
	for got, want := range map[string]string{
		helper(asm.BuiltinFunc(999)):     "unknown#999",
		helper(asm.FnUnspec):             "unknown#0",
		helper(asm.FnGetPrandomU32):      "bpf_get_prandom_u32",
		helper(asm.FnSkcToTcp6Sock):      "bpf_skc_to_tcp6_sock",
		helper(asm.FnL3CsumReplace):      "bpf_l3_csum_replace",
		mapType(ebpf.MapType(999)):       "unknown#999",
		mapType(ebpf.LRUCPUHash):         "lru_percpu_hash",
		mapType(ebpf.ReusePortSockArray): "reuseport_sockarray",
		mapType(ebpf.Arena):              "arena",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestProgramType(t *testing.T) {
	for section, want := range map[string]string{
		"xdp": "xdp", "xdp.frags": "xdp", "classifier": "tc", "classifier/ingress": "tc", "uprobe": "uprobe", "tp/sched/sched_switch": "tracepoint",
		"tracepoint/syscalls/sys_enter_kill": "tracepoint", "fexit/do_unlinkat": "fexit", "sockops": "sockops",
	} {
		if got := programType(section); got != want {
			t.Errorf("programType(%q) = %q, want %q", section, got, want)
		}
	}
}

// An object without any program that bpfman can load has a problem. One with others beside it has none.
func TestProblems(t *testing.T) {
	program := func(section string) Program {
		return programIn(section, "f")
	}
	for section, fine := range map[string]bool{
		"xdp": true, "classifier/ingress": true, "tracepoint/syscalls/sys_enter_kill": true, "uprobe.s": true, "tc": true, "xdp/f": true, "tcx/ingress": true,
		"action": true, "kprobe.multi/x": true, "lsm.s/file_open": true, "lsm_cgroup/socket_bind": false, "sockops": false, "cgroup_skb/ingress": false, "xdp/cpumap": false, "sk_skb": false, "netkit/primary": false,
	} {
		alone, beside := Object{Programs: []Program{program(section)}}, Object{Programs: []Program{program(section), program("xdp")}}
		if got := alone.Problems(); len(got) == 0 != fine || len(beside.Problems()) > 0 {
			t.Errorf("%s: problems %q, and %q beside another", section, got, beside.Problems())
		}
	}
	if got := program("xdp/cpumap").Unsupported; got != `it is in section "xdp/cpumap", and bpfman has no kind for programs of type "xdp/cpumap"` {
		t.Error(got)
	}
}

// Needs are what programs use of the kernel.
func TestNeeds(t *testing.T) {
	for want, content := range map[string][]byte{
		"its configuration: CONFIG_BPF_SYSCALL, CONFIG_DEFAULT_HOSTNAME, CONFIG_HZ, LINUX_HAS_SYSCALL_WRAPPER, LINUX_KERNEL_VERSION": probes(t, "kconfig-el.elf"),
		"BTF, for its CO-RE relocations\nits configuration: LINUX_KERNEL_VERSION":                                                    compiled(t, "written_for_libbpf.o"),
		"BPF trampolines, for fentry":                            compiled(t, "fentry.o"),
		"BPF trampolines, for lsm\nsecurity module bpf, for lsm": compiled(t, "lsm.o"),
		"": compiled(t, "tcx_test.o"),
	} {
		o, err := Read(content)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.Needs, "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	o, err := Read(compiled(t, "written_for_libbpf.o"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range o.Programs {
		got = append(got, p.Name+" needs "+strings.Join(p.Needs, ", ")+", since "+p.Since)
	}
	if want := []string{"kill_without_signal needs BTF, configuration, since ", "list_tasks needs , since no version of the daemon up to v0.6"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := since("lsm.s/file_open", programType("lsm.s/file_open")); got != "the daemon in Go" {
		t.Error(got)
	}
}

func TestValues(t *testing.T) {
	for want, v := range map[string]Variable{
		"200":        {Type: "u8", Size: 1, Default: []byte{200}},
		"-56":        {Type: "s8", Size: 1, Default: []byte{200}},
		"258":        {Type: "u16", Size: 2, Default: []byte{2, 1}},
		"67305985":   {Type: "u32", Size: 4, Default: []byte{1, 2, 3, 4}},
		"-1":         {Type: "s64", Size: 8, Default: []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		"0x0102":     {Type: "u8[2]", Size: 2, Default: []byte{1, 2}},
		"0x01020304": {Type: "struct a", Size: 4, Default: []byte{1, 2, 3, 4}},
		"0x":         {Type: "u32", Size: 0, Default: nil},
	} {
		if got := v.Value(littleEndian); got != want {
			t.Errorf("%s %v is %s, want %s", v.Type, v.Default, got, want)
		}
	}
	if got := (Variable{Type: "u16", Size: 2, Default: []byte{1, 2}}).Value(bigEndian); got != "258" {
		t.Errorf("big-endian 01 02 is %s", got)
	}
}
