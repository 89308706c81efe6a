// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// mapsSection is the section whose variables define maps in libbpf's form.
const mapsSection = ".maps"

const (
	// defaultEntries is the number of elements of a map without one. bcc's tools have the same default.
	defaultEntries = 10240
	// defaultCPUs is the same for a map of CPUs. The kernel refuses more than it is built for.
	defaultCPUs = 64
	// defaultRing is the size of a ring buffer without one, in bytes.
	defaultRing = 256 << 10
	// frame and deepestStack are the size of a stack trace's frame in bytes, and how many frames the kernel keeps
	// by default (kernel.perf_event_max_stack).
	frame, deepestStack = 8, 127
)

// definition is how an object defines a map. Sizes are in bytes, and 0 if the definition doesn't have them.
type definition struct {
	name                                        string
	kind                                        ebpf.MapType
	keySize, valueSize, entries, flags, pinning uint32
	// key and value are the types of keys and values, or nil.
	key, value btf.Type
	// in is the definition among the object's types. It is nil for the older form.
	in *btf.Struct
	// undefined means that the object's types don't have the definition.
	undefined bool
}

// fit changes a definition to one that the daemon's loader (aya 0.13.1 in bpfman v0.6.0) and the kernel accept, as libbpf
// does. It returns why the loader can't create the map, and what to do, or nothing.
func (d *definition) fit(printed *values) string {
	if d.undefined {
		return "which isn't defined in the object's types: declare it without static, and compile it with clang -g"
	}
	switch d.kind {
	case ebpf.ArrayOfMaps, ebpf.HashOfMaps:
		return "a map of maps, which bpfman's daemon v0.6 can't create: leave the function out, or load it without bpfman"
	case ebpf.RingBuf, ebpf.UserRingbuf:
		// The types are only for tools that generate code.
		d.keySize, d.valueSize = 0, 0
		d.untype()
	case ebpf.ProgramArray, ebpf.PerfEventArray, ebpf.CGroupArray:
		const number = 4
		d.keySize, d.valueSize = number, number
		d.untype()
	case ebpf.StackTrace:
		d.valueSize = cmp.Or(d.valueSize, frame*deepestStack)
	default:
	}
	if d.in == nil && d.pinning != uint32(ebpf.PinByName) {
		// Other numbers are iproute2's. The daemon's loader doesn't check that it knows the number in the older form.
		d.pinning = uint32(ebpf.PinNone)
	}
	if !d.typesFit() || printed.unprintable(d.key, d.value) {
		d.untype()
	}
	d.entries = cmp.Or(d.entries, usualEntries(d.kind))
	return ""
}

// usualEntries returns the size of a map whose definition has none: otherwise, its own program would set one. It is 0 for
// the types for which 0 is right, and where the daemon or the kernel choose.
func usualEntries(kind ebpf.MapType) uint32 {
	switch kind {
	case ebpf.RingBuf, ebpf.UserRingbuf:
		return defaultRing
	case ebpf.PerfEventArray, ebpf.SkStorage, ebpf.InodeStorage, ebpf.TaskStorage, ebpf.CgroupStorage, ebpf.CGroupStorage,
		ebpf.PerCPUCGroupStorage, ebpf.Arena:
		return 0
	case ebpf.CPUMap:
		return defaultCPUs
	default:
		return defaultEntries
	}
}

// untype leaves the types out. The kernel only uses them to print the map.
func (d *definition) untype() { d.key, d.value = nil, nil }

// typesFit reports whether the kernel accepts the types for such a map (map_check_btf), both or none. Otherwise, libbpf
// leaves them out too.
func (d *definition) typesFit() bool {
	if d.key == nil || d.value == nil {
		return d.value == nil && d.key == nil || d.keySize == 0
	}
	key := btf.UnderlyingType(d.key)
	_, isInt := key.(*btf.Int)
	_, isStruct := key.(*btf.Struct)
	switch d.kind {
	case ebpf.Array, ebpf.PerCPUArray:
		return isInt
	case ebpf.LPMTrie:
		return isStruct
	default:
		return true
	}
}

// unprintable reports whether the kernel would take too long to print an element of a map with keys and values of these
// types. It prints all of it when the map is read as a file, and nothing ends the reader meanwhile. It prints each member of
// a union, so a few bytes can have any number of values.
func (c *values) unprintable(key, value btf.Type) bool {
	return c.count(key) > maxPrinted || c.count(value) > maxPrinted
}

// unprintableVariables returns the sections of global variables that have more values than bytes, which only unions have, and
// too many to print. One of the daemons gives their maps types.
func (c *values) unprintableVariables(types *btf.Spec) map[string]bool {
	found := map[string]bool{}
	if types == nil {
		return found
	}
	for t, err := range types.All() {
		if section, is := t.(*btf.Datasec); is && err == nil && section.Name != mapsSection {
			found[section.Name] = found[section.Name] || c.count(section) > min(max(maxPrinted, uint64(section.Size)), manyValues-1)
		}
	}
	return found
}

const (
	// maxPrinted is the maximum number of values in a key or a value of a map that has types. The kernel prints this many
	// in a tenth of a second.
	maxPrinted = 1 << 16
	// maxNested is the kernel's limit for types in types (MAX_RESOLVE_DEPTH).
	maxNested = 32
	// manyValues is more than the number of values of anything that the kernel prints in time. Its product with the number of
	// elements of an array fits into 64 bits.
	manyValues = 1 << 31
)

// values counts how many values the kernel prints for an object's types. It has those that it counted before, so all
// types together take as long as the largest of them. The zero value is ready to use.
type values struct{ counted map[btf.Type]uint64 }

// count returns how many values the kernel prints for a type: manyValues for that many or more, and for a type that contains
// itself or is nested too deeply.
func (c *values) count(t btf.Type) uint64 {
	if t == nil {
		return 0
	}
	if c.counted == nil {
		c.counted = map[btf.Type]uint64{}
	}
	return c.nested(t, 0)
}

func (c *values) nested(t btf.Type, depth int) uint64 {
	t = btf.UnderlyingType(t)
	if known, ok := c.counted[t]; ok {
		return known
	}
	if depth > maxNested {
		return manyValues
	}
	c.counted[t] = manyValues
	var number uint64
	for _, part := range parts(t) {
		number = min(number+c.nested(part.of, depth+1)*uint64(part.times), manyValues)
	}
	c.counted[t] = max(number, 1)
	return c.counted[t]
}

// part is a type that another type contains a number of times.
type part struct {
	of    btf.Type
	times uint32
}

func parts(t btf.Type) []part {
	var found []part
	switch t := t.(type) {
	case *btf.Array:
		found = append(found, part{t.Type, t.Nelems})
	case *btf.Struct:
		for _, member := range t.Members {
			found = append(found, part{member.Type, 1})
		}
	case *btf.Union:
		for _, member := range t.Members {
			found = append(found, part{member.Type, 1})
		}
	case *btf.Datasec:
		for _, variable := range t.Vars {
			found = append(found, part{variable.Type, 1})
		}
	case *btf.Var:
		found = append(found, part{t.Type, 1})
	}
	return found
}

// definitions returns the maps that an object defines, by the index of their symbols.
func (a *adaption) definitions() (map[int]definition, error) {
	found := map[int]definition{}
	structs, err := a.definedInTypes()
	if err != nil {
		return nil, err
	}
	for n, y := range a.symbols {
		if int(y.Shndx) >= len(a.sections) || !a.sections[y.Shndx].maps() {
			continue
		}
		s, d := &a.sections[y.Shndx], definition{undefined: true}
		switch t := structs[y.name]; {
		case s.name != mapsSection && y.name != "":
			d = a.definedInBytes(s, y)
		case t != nil:
			d = definedIn(t)
		}
		d.name = y.name
		found[n] = d
	}
	return found, nil
}

// definedInTypes returns the types of the variables in the section .maps.
func (a *adaption) definedInTypes() (map[string]*btf.Struct, error) {
	found := map[string]*btf.Struct{}
	if a.types == nil {
		return found, nil
	}
	var list *btf.Datasec
	if err := a.types.TypeByName(mapsSection, &list); errors.Is(err, btf.ErrNotFound) {
		return found, nil
	} else if err != nil {
		return nil, problem.Errorf(problem.ObjectUnusual, "its types of %s can't be read: %s", mapsSection, plain.Text(err.Error()))
	}
	for _, entry := range list.Vars {
		v, ok := entry.Type.(*btf.Var)
		if !ok {
			return nil, problem.Errorf(problem.ObjectUnusual, "its types of %s can't be read: it defines more than maps", mapsSection)
		}
		if t, ok := btf.UnderlyingType(v.Type).(*btf.Struct); ok {
			found[v.Name] = t
		}
	}
	return found, nil
}

// definedIn reads libbpf's form: members of a structure that point to arrays with as many elements as the number, or to
// the type of keys or values.
func definedIn(t *btf.Struct) definition {
	d := definition{in: t}
	for _, member := range t.Members {
		pointer, isPointer := btf.UnderlyingType(member.Type).(*btf.Pointer)
		if !isPointer {
			continue
		}
		var number uint32
		if array, ok := btf.UnderlyingType(pointer.Target).(*btf.Array); ok {
			number = array.Nelems
		}
		size, _ := btf.Sizeof(pointer.Target) // 0, if there is none
		switch member.Name {
		case "type":
			d.kind = ebpf.MapType(number)
		case "key":
			d.key, d.keySize = pointer.Target, uint32(size) //nolint:gosec // positive
		case "value":
			d.value, d.valueSize = pointer.Target, uint32(size) //nolint:gosec // positive
		case "key_size":
			d.keySize = number
		case "value_size":
			d.valueSize = number
		case "max_entries":
			d.entries = number
		case "map_flags":
			d.flags = number
		case "pinning":
			d.pinning = number
		}
	}
	return d
}

// legacySize is the size of the part of struct bpf_map_def that all its versions have, in bytes. In the version of iproute2
// and of the daemon's loader, an id follows, and then how the map is pinned. Where a definition ends before that, the loader
// takes the rest as 0.
const (
	legacySize = 20
	legacyPin  = 24
	loaderSize = 28
)

func (a *adaption) definedInBytes(s *section, y symbol) definition {
	content, ok := within(s.data, y.Value, y.Size)
	if !ok || y.Size < legacySize {
		return definition{undefined: true}
	}
	whole := make([]byte, loaderSize)
	copy(whole, content)
	number := func(n int) uint32 { return a.order.Uint32(whole[4*n:]) }
	return definition{
		kind: ebpf.MapType(number(0)), keySize: number(1), valueSize: number(2), entries: number(3), flags: number(4),
		pinning: number(legacyPin / 4),
	}
}

// defineInBytes writes a definition to where definedInBytes has read it.
func (a *adaption) defineInBytes(d definition, y symbol) {
	content, _ := within(a.sections[y.Shndx].data, y.Value, y.Size) // it was read from there
	for n, number := range []uint32{uint32(d.kind), d.keySize, d.valueSize, d.entries} {
		a.order.PutUint32(content[4*n:], number)
	}
	if len(content) > legacyPin {
		pinning := make([]byte, loaderSize-legacyPin)
		a.order.PutUint32(pinning, d.pinning)
		copy(content[legacyPin:], pinning)
	}
}

// refuseMaps marks the programs that use maps which the daemon can't create. It returns the symbols of these maps with the
// reasons, and the changed definitions of others.
func (a *adaption) refuseMaps() (refused map[int]error, fitting map[int]definition, err error) {
	defined, err := a.definitions()
	if err != nil {
		return nil, nil, err
	}
	refused, fitting = map[int]error{}, map[int]definition{}
	for n, d := range defined {
		before := d
		if why := d.fit(&a.printed); why != "" {
			refused[n] = problem.Errorf(problem.FunctionUsesMap, "it uses the map %s, %s", plain.Quote(d.name), why)
		} else if d != before {
			fitting[n] = d
		}
	}
	for i := range a.sections {
		if !a.sections[i].code() {
			continue
		}
		for _, r := range a.relocations(i) {
			if why := refused[int(r.symbol)]; why != nil {
				a.refuse(i, r.offset, why)
			}
		}
	}
	return refused, fitting, nil
}

// fitMaps changes the definitions of maps to ones that the daemon can load, and removes the maps that it can't create.
func (a *adaption) fitMaps() error {
	refused, fitting, err := a.refuseMaps()
	if err != nil {
		return err
	}
	for n, d := range fitting {
		y := a.symbols[n]
		if d.in == nil {
			a.defineInBytes(d, y)
			continue
		}
		number, err := a.types.TypeID(d.in)
		if err != nil {
			return problem.Errorf(problem.ObjectUnusual, "its types of %s can't be read: %s", mapsSection, plain.Text(err.Error()))
		}
		a.defined[uint32(number)] = d
	}
	for n := range refused {
		a.removed[a.symbols[n].name] = true
		a.setSymbol(n, elf.Sym64{Name: a.symbols[n].Name, Info: a.symbols[n].Info})
	}
	// The loader doesn't accept a section that defines nothing.
	kept := map[uint16]bool{}
	for n, y := range a.symbols {
		kept[y.Shndx] = kept[y.Shndx] || refused[n] == nil
	}
	for i := range a.sections {
		if a.sections[i].maps() && !kept[uint16(i)] {
			a.sections[i] = section{}
		}
	}
	return nil
}

// addSymbol adds a symbol without a name to the table.
func (a *adaption) addSymbol(y elf.Sym64) {
	table := &a.sections[a.table]
	content, _ := binary.Append(table.data, a.order, y) // fails for no symbol
	table.change(content)
	a.symbols = append(a.symbols, symbol{Sym64: y})
}

// setSymbol changes a symbol in the table.
func (a *adaption) setSymbol(n int, y elf.Sym64) {
	_, _ = binary.Encode(a.sections[a.table].data[n*symbolSize:], a.order, y) // the table is long enough
}
