// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecode reads the programs, maps, and global variables of an eBPF object file. The file can come from
// an untrusted source.
package bytecode

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// MaxSize is the maximum size of an object file, in bytes. Agents refuse images with larger content.
const MaxSize = 32 << 20

// Limits on what Read accepts from a file, no matter which sizes its headers claim.
const (
	maxSections = 4096
	// maxUnpacked is the limit for the size of all sections together, in bytes. It includes sections that aren't
	// stored (.bss), and the uncompressed size of compressed sections.
	maxUnpacked = 2 * MaxSize
)

// Object describes the content of an object file.
type Object struct {
	// ByteOrder is "little" or "big".
	ByteOrder string     `json:"byteOrder"`
	Programs  []Program  `json:"programs"`
	Maps      []Map      `json:"maps"`
	Globals   []Variable `json:"globals"`
}

// Program is a function that can be loaded as a program.
type Program struct {
	Name string `json:"name"`
	// Type is the type that results from the section, with bpfman's name, such as tc for both TC and TCX. For a
	// section that no kind of bpfman corresponds to, it is the prefix of the section's name.
	Type    string `json:"type"`
	Section string `json:"section"`
}

// Map is a map that the programs define.
type Map struct {
	Name string `json:"name"`
	// Type is the type, as in the label of a bytecode image, such as hash or per_cpu_array.
	Type string `json:"type"`
	// KeySize and ValueSize are in bytes. MaxEntries can also be a size in bytes, for example for ring buffers.
	// Zero means that the loader decides.
	KeySize    uint32 `json:"keySize"`
	ValueSize  uint32 `json:"valueSize"`
	MaxEntries uint32 `json:"maxEntries"`
	// PinnedByName means that the map is pinned at /sys/fs/bpf/<name>, once for the whole node.
	PinnedByName bool `json:"pinnedByName,omitempty"`
}

// Variable is a global variable. The globaldata of an object can set variables in read-only sections.
type Variable struct {
	Name string `json:"name"`
	// Type is the type in the source, such as u32 or u8[8]. It is empty if the file has no BTF.
	Type    string `json:"type,omitempty"`
	Section string `json:"section"`
	// Size is the size in bytes.
	Size uint32 `json:"size"`
	// Default is the value in the file, in the format of globaldata.
	Default []byte `json:"default"`
}

// Constant reports whether a variable can't change while its program runs, and is therefore meant to be set in
// globaldata.
func (v Variable) Constant() bool { return strings.HasPrefix(v.Section, ".rodata") }

// Value returns the default as a number, or in hexadecimal.
func (v Variable) Value(byteOrder string) string {
	var order binary.ByteOrder = binary.LittleEndian
	if byteOrder == bigEndian {
		order = binary.BigEndian
	}
	signed := strings.HasPrefix(v.Type, "s")
	switch integer := integerType.MatchString(v.Type); {
	case integer && v.Size == 1 && signed:
		return fmt.Sprint(int8(v.Default[0])) //nolint:gosec // the same bits
	case integer && v.Size == 1:
		return fmt.Sprint(v.Default[0])
	case integer && v.Size == 2 && signed:
		return fmt.Sprint(int16(order.Uint16(v.Default))) //nolint:gosec // the same bits
	case integer && v.Size == 2:
		return fmt.Sprint(order.Uint16(v.Default))
	case integer && v.Size == 4 && signed:
		return fmt.Sprint(int32(order.Uint32(v.Default))) //nolint:gosec // the same bits
	case integer && v.Size == 4:
		return fmt.Sprint(order.Uint32(v.Default))
	case integer && v.Size == 8 && signed:
		return fmt.Sprint(int64(order.Uint64(v.Default))) //nolint:gosec // the same bits
	case integer && v.Size == 8:
		return fmt.Sprint(order.Uint64(v.Default))
	}
	return fmt.Sprintf("0x%x", v.Default)
}

var integerType = regexp.MustCompile(`^[su](8|16|32|64)$`)

// Values of Object.ByteOrder.
const (
	littleEndian = "little"
	bigEndian    = "big"
)

// Read reads an object file.
func Read(file []byte) (object Object, err error) {
	if err := check(file); err != nil {
		return Object{}, fmt.Errorf("read eBPF object: %w", err)
	}
	// The parser trusts its input, and can panic.
	defer func() {
		if r := recover(); r != nil {
			object, err = Object{}, fmt.Errorf("read eBPF object: it is malformed: %v", r)
		}
	}()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(file))
	if err != nil {
		return Object{}, fmt.Errorf("read eBPF object: %w", err)
	}
	if len(spec.Programs) == 0 {
		return Object{}, errors.New("read eBPF object: it has no programs")
	}
	return describe(spec), nil
}

// check refuses files that would need too much memory.
func check(file []byte) (err error) {
	if len(file) > MaxSize {
		return fmt.Errorf("it has more than %d MiB", MaxSize>>20)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it isn't an ELF file: %v", r)
		}
	}()
	if len(file) < len(elf.ELFMAG) || string(file[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return errors.New("it isn't an ELF file, such as `clang -target bpf -g -O2 -c` writes")
	}
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("it isn't an ELF file: %w", err)
	}
	if len(f.Sections) > maxSections {
		return fmt.Errorf("it has %d sections", len(f.Sections))
	}
	var unpacked uint64
	for _, s := range f.Sections {
		if s.Size > maxUnpacked || unpacked+s.Size > maxUnpacked {
			return fmt.Errorf("its sections have more than %d MiB", maxUnpacked>>20)
		}
		unpacked += s.Size
	}
	return nil
}

func describe(spec *ebpf.CollectionSpec) Object {
	o := Object{ByteOrder: littleEndian, Programs: []Program{}, Maps: []Map{}, Globals: []Variable{}}
	if spec.ByteOrder == binary.BigEndian {
		o.ByteOrder = bigEndian
	}
	for name, p := range spec.Programs {
		o.Programs = append(o.Programs, Program{Name: name, Type: programType(p.SectionName), Section: p.SectionName})
	}
	for name, m := range spec.Maps {
		// The compiler's data sections are also maps.
		if !strings.HasPrefix(name, ".") {
			o.Maps = append(o.Maps, Map{name, snakeCase(m.Type.String()), m.KeySize, m.ValueSize, m.MaxEntries, m.Pinning == ebpf.PinByName})
		}
	}
	for name, v := range spec.Variables {
		o.Globals = append(o.Globals, Variable{name, typeName(v.Type), v.SectionName, uint32(len(v.Value)), v.Value}) //nolint:gosec // within the file
	}
	slices.SortFunc(o.Programs, func(a, b Program) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Maps, func(a, b Map) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Globals, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return o
}

// sections maps the prefixes of sections for which bpfman has program types to these types, as in the daemon of
// v0.6.0.
var sections = map[string]string{
	"xdp": "xdp", "xdp.frags": "xdp",
	"classifier": "tc",
	"tracepoint": "tracepoint", "tp": "tracepoint",
	"kprobe": "kprobe", "kretprobe": "kretprobe",
	"uprobe": "uprobe", "uprobe.s": "uprobe", "uretprobe": "uretprobe", "uretprobe.s": "uretprobe",
	"fentry": "fentry", "fentry.s": "fentry",
	"fexit": "fexit", "fexit.s": "fexit",
}

// refused reports whether the daemon's loader (aya-obj 0.2.1 in bpfman v0.6.0) doesn't recognize the section. It
// then refuses the whole object.
func (p Program) refused() bool {
	kind, _, _ := strings.Cut(p.Section, "/")
	return sections[kind] == "" && !slices.Contains(otherSections, kind)
}

// otherSections are the sections that the loader recognizes, but for which bpfman has no kind.
var otherSections = []string{
	"cgroup", "cgroup_skb", "freplace", "lirc_mode2", "lsm", "lsm.s", "perf_event", "raw_tp", "raw_tracepoint", "sk_lookup", "sk_msg", "sk_skb",
	"socket", "sockops", "tp_btf",
}

// Problems returns the reasons why the daemon can't load the object.
func (o Object) Problems() []string {
	var found []string
	for _, p := range o.Programs {
		if p.refused() {
			found = append(found, fmt.Sprintf("the daemon's loader doesn't recognize section %q (%s), and refuses the object: packet filters belong in section classifier; for other sections, see docs/programs.md", p.Section, p.Name))
		}
	}
	return found
}

func programType(section string) string {
	kind, _, _ := strings.Cut(section, "/")
	return cmp.Or(sections[kind], kind)
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

func snakeCase(name string) string {
	return strings.ToLower(wordStart.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

// typeName returns the name of a variable's type. Integers are named by sign and width, and arrays by their
// elements and length.
func typeName(v *btf.Var) string {
	if v == nil {
		return ""
	}
	return nameOf(v.Type)
}

func nameOf(t btf.Type) string {
	const bits = 8
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		switch t.Encoding {
		case btf.Signed:
			return fmt.Sprintf("s%d", t.Size*bits)
		case btf.Bool:
			return "bool"
		default:
			return fmt.Sprintf("u%d", t.Size*bits)
		}
	case *btf.Array:
		// Without this limit, nested arrays would result in a long description.
		if element := btf.UnderlyingType(t.Type); !isArray(element) {
			return fmt.Sprintf("%s[%d]", nameOf(element), t.Nelems)
		}
		return "array"
	case *btf.Struct:
		return strings.TrimSpace("struct " + t.Name)
	case *btf.Union:
		return strings.TrimSpace("union " + t.Name)
	case *btf.Enum:
		return strings.TrimSpace("enum " + t.Name)
	case *btf.Float:
		return fmt.Sprintf("f%d", t.Size*bits)
	default:
		return ""
	}
}

func isArray(t btf.Type) bool {
	_, is := t.(*btf.Array)
	return is
}
