// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecode says what is in an eBPF object file: programs, maps and global variables. A file may be anybody's.
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

// MaxSize is the most that an object file may have, in bytes: an agent refuses images that hold more.
const MaxSize = 32 << 20

// Limits of what is read of a file that says more of itself than it has.
const (
	maxSections = 4096
	// maxUnpacked is for all sections together, in bytes, zeros and what is compressed included.
	maxUnpacked = 2 * MaxSize
)

// Object is what an object file holds.
type Object struct {
	// ByteOrder is little or big.
	ByteOrder string     `json:"byteOrder"`
	Programs  []Program  `json:"programs"`
	Maps      []Map      `json:"maps"`
	Globals   []Variable `json:"globals"`
}

// Program is a function that can be loaded.
type Program struct {
	Name string `json:"name"`
	// Type is that of the section as bpfman spells it, such as tc for both TC and TCX. Of sections that bpfman has no
	// kind for it is what the section begins with.
	Type    string `json:"type"`
	Section string `json:"section"`
}

// Map is a map that the programs declare.
type Map struct {
	Name string `json:"name"`
	// Type is that of the label of a bytecode image, such as hash or per_cpu_array.
	Type string `json:"type"`
	// KeySize and ValueSize are in bytes, MaxEntries may be a size in bytes too, as for ring buffers. Zero means that
	// the loader chooses.
	KeySize    uint32 `json:"keySize"`
	ValueSize  uint32 `json:"valueSize"`
	MaxEntries uint32 `json:"maxEntries"`
	// PinnedByName tells that the map is pinned at /sys/fs/bpf/<name>, one for the whole node.
	PinnedByName bool `json:"pinnedByName,omitempty"`
}

// Variable is a global variable. Those of read-only sections can be set by an object's globaldata.
type Variable struct {
	Name string `json:"name"`
	// Type is that of the source, such as u32 or u8[8], where the file has BTF.
	Type    string `json:"type,omitempty"`
	Section string `json:"section"`
	// Size is in bytes.
	Size uint32 `json:"size"`
	// Default is the value that the file has, as globaldata takes it.
	Default []byte `json:"default"`
}

// Constant tells whether a variable never changes while its program runs: it is there to be set before.
func (v Variable) Constant() bool { return strings.HasPrefix(v.Section, ".rodata") }

// Value is the default as a number, or in hexadecimal.
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

// Byte orders of objects.
const (
	littleEndian = "little"
	bigEndian    = "big"
)

// Read reads an object file.
func Read(file []byte) (object Object, err error) {
	if err := check(file); err != nil {
		return Object{}, fmt.Errorf("read eBPF object: %w", err)
	}
	// The parser is made for objects that one has compiled.
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

// check refuses files that would take more memory than they are worth.
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
		return errors.New("it isn't an ELF file, which `clang -target bpf -g -O2 -c` makes of a source")
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
		// The compiler's data sections are maps too.
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

// sections are the kinds of section that bpfman loads programs of, as the daemon of v0.6.0 knows them, and the types
// that it makes of them.
var sections = map[string]string{
	"xdp": "xdp", "xdp.frags": "xdp",
	"classifier": "tc",
	"tracepoint": "tracepoint", "tp": "tracepoint",
	"kprobe": "kprobe", "kretprobe": "kretprobe",
	"uprobe": "uprobe", "uprobe.s": "uprobe", "uretprobe": "uretprobe", "uretprobe.s": "uretprobe",
	"fentry": "fentry", "fentry.s": "fentry",
	"fexit": "fexit", "fexit.s": "fexit",
}

// refused tells whether the daemon's loader (aya-obj 0.2.1, of bpfman v0.6.0) knows no such section, and so refuses the
// object as a whole.
func (p Program) refused() bool {
	kind, _, _ := strings.Cut(p.Section, "/")
	return sections[kind] == "" && !slices.Contains(otherSections, kind)
}

// otherSections are what the loader knows and bpfman has no kind for.
var otherSections = []string{
	"cgroup", "cgroup_skb", "freplace", "lirc_mode2", "lsm", "lsm.s", "perf_event", "raw_tp", "raw_tracepoint", "sk_lookup", "sk_msg", "sk_skb",
	"socket", "sockops", "tp_btf",
}

// Problems are what keeps the daemon from loading the object.
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

// typeName names a variable's type: integers by sign and width, arrays of them, and others by their names.
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
		// An element of an array would be described as often as arrays are within arrays.
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
