// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/btftype"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Sections that exist only in the object's types: the kernel's configuration, and its variables and functions.
const (
	kconfigSection = ".kconfig"
	ksymsSection   = ".ksyms"
	// kconfigData is the section of the values. The loader makes a read-only map of it, with its name, which has the
	// maximum length.
	kconfigData = ".rodata.kconfig"
	// maxOptions is the limit for the size of all options, in bytes.
	maxOptions = 64 << 10
)

// external is a variable or function that an object expects elsewhere.
type external struct {
	section string
	// variable is the type of a variable, and nil for a function.
	variable btf.Type
}

// externals returns the external variables and functions by name.
func externals(types *btf.Spec) (map[string]external, error) {
	found := map[string]external{}
	for _, name := range []string{kconfigSection, ksymsSection} {
		var list *btf.Datasec
		if err := types.TypeByName(name, &list); errors.Is(err, btf.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, problem.Errorf(problem.ObjectUnusual, "its types of %s can't be read: %s", name, plain.Text(err.Error()))
		}
		for _, entry := range list.Vars {
			switch t := entry.Type.(type) {
			case *btf.Var:
				found[t.Name] = external{name, t.Type}
			case *btf.Func:
				found[t.Name] = external{section: name}
			}
		}
	}
	return found, nil
}

// connect connects the instructions that use external variables and functions with the kernel's.
func (a *adaption) connect() {
	o := options{at: map[string]uint64{}}
	for i := range a.sections {
		if !a.sections[i].code() {
			continue
		}
		for _, r := range a.relocations(i) {
			y, at := a.symbols[r.symbol], r.offset
			if elf.SectionIndex(y.Shndx) != elf.SHN_UNDEF || y.name == "" {
				continue
			}
			a.forKernel = true
			if elf.ST_TYPE(y.Info) == elf.STT_FUNC { // the loader would panic; compilers leave the type out
				y.Info = elf.ST_INFO(elf.ST_BIND(y.Info), elf.STT_NOTYPE)
				a.setSymbol(int(r.symbol), y.Sym64)
			}
			if err := a.connectOne(i, at, y, &o); err != nil {
				a.refuse(i, at, fmt.Errorf("it uses the external %s: %w", plain.Quote(y.name), err))
			}
		}
	}
	if len(o.values) > 0 {
		a.place(&o)
	}
}

// connectOne connects the instruction at an offset of a section.
func (a *adaption) connectOne(section int, at uint64, y symbol, o *options) error {
	e, known := a.external[y.name]
	code, ok := within(a.sections[section].data, at, instructionSize)
	if !ok {
		return problem.Errorf(problem.ObjectUnusual, "the relocation is outside of the section")
	}
	_, isCall := a.call(code)
	isOption, isLoad := e.section == kconfigSection, a.loads(place{section, at})
	switch {
	case !known:
		return problem.Errorf(problem.SymbolUnknown, "it isn't defined in the object, and the object's types don't say what it is")
	case !isLoad && (isOption || !isCall):
		return problem.Errorf(problem.ObjectUnusual, "the instruction neither calls it nor loads its address")
	case isOption:
		return a.connectOption(y, e, o)
	}
	return a.connectCode(a.sections[section].data[at:], y, e, isCall)
}

// options are the values of the kernel's configuration, and where each option's value is among them.
type options struct {
	at     map[string]uint64
	values []byte
}

func (a *adaption) connectOption(y symbol, e external, o *options) error {
	if _, set := o.at[y.name]; set {
		return nil
	}
	value, err := a.kernel.value(y.name, e.variable, isWeak(y), a.order)
	if err != nil {
		return err
	}
	if len(o.values) > maxOptions {
		return problem.Errorf(problem.ObjectTooLarge, "its options have more than %d bytes", maxOptions)
	}
	const alignment = 8 // of the largest integer
	o.values = aligned(o.values, alignment)
	o.at[y.name] = uint64(len(o.values))
	o.values = append(o.values, value...)
	return nil
}

func isWeak(y symbol) bool { return elf.ST_BIND(y.Info) == elf.STB_WEAK }

// place adds the section with the values of the kernel's configuration, and defines the symbols there.
func (a *adaption) place(o *options) {
	index := a.add(kconfigData, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addralign: 8}, o.values)
	for n, y := range a.symbols {
		if at, set := o.at[y.name]; set && elf.SectionIndex(y.Shndx) == elf.SHN_UNDEF {
			y.Shndx, y.Value = index, at
			y.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT)
			a.setSymbol(n, y.Sym64)
		}
	}
}

// connectCode changes an instruction that uses a variable or function of the kernel.
func (a *adaption) connectCode(code []byte, y symbol, e external, isCall bool) error {
	number, err := a.kernel.number(y.name, e)
	switch {
	case errors.Is(err, btf.ErrNotFound) && isWeak(y) && isCall:
		a.callNothing(code)
		return nil
	case errors.Is(err, btf.ErrNotFound) && isWeak(y):
		number = 0
		a.setSource(code, loadsNumber)
	case errors.Is(err, btf.ErrNotFound):
		return problem.Errorf(problem.SymbolNotInKernel, "this kernel doesn't have it, or only in a module")
	case err != nil:
		return err
	case isCall:
		a.setSource(code, callsKernelFunction)
	default:
		a.setSource(code, loadsKernelVariable)
	}
	a.order.PutUint32(code[4:], uint32(number))
	if !isCall {
		a.order.PutUint32(code[instructionSize+4:], 0)
	}
	return nil
}

// setSource sets the source register of an instruction.
func (a *adaption) setSource(code []byte, register byte) {
	const nibble = 4
	if a.order == binary.BigEndian {
		code[1] = code[1]&^(1<<nibble-1) | register
		return
	}
	code[1] = code[1]&(1<<nibble-1) | register<<nibble
}

// number returns the number of a variable or function among the kernel's types.
func (k *Kernel) number(name string, e external) (btf.TypeID, error) {
	if e.variable != nil {
		if _, typeless := btf.UnderlyingType(e.variable).(*btf.Void); typeless {
			return 0, problem.Errorf(problem.SymbolAddressHidden, "its address is needed, which only processes with CAP_SYSLOG can read")
		}
	}
	types, err := k.Types()
	if err != nil {
		return 0, err
	}
	if e.variable == nil {
		return numberOf[*btf.Func](types, name)
	}
	return numberOf[*btf.Var](types, name)
}

func numberOf[T btf.Type](types *btf.Spec, name string) (btf.TypeID, error) {
	var found T
	if err := types.TypeByName(name, &found); err != nil {
		return 0, err //nolint:wrapcheck // the caller says which
	}
	return types.TypeID(found) //nolint:wrapcheck // see above
}

// value returns the bytes of a variable for an option of the kernel's configuration, as libbpf does.
func (k *Kernel) value(name string, variable btf.Type, weak bool, order binary.ByteOrder) ([]byte, error) {
	size, err := btf.Sizeof(variable)
	if err != nil || size <= 0 || size > maxAlignment {
		return nil, problem.Errorf(problem.KconfigType, "its type has no usual size")
	}
	out := make([]byte, size)
	text, set, err := k.option(name)
	switch {
	case err != nil && !weak:
		return nil, err
	case !set && !weak:
		return nil, problem.Errorf(problem.SymbolNotInKernel, "the kernel's configuration doesn't have it")
	case !set:
		return out, nil
	}
	quoted, isText := strings.CutPrefix(text, `"`)
	switch t := btf.UnderlyingType(variable).(type) {
	case *btf.Array:
		if !isText {
			return nil, problem.Errorf(problem.KconfigType, "its value %s isn't a text", plain.Quote(text))
		}
		copy(out[:size-1], strings.TrimSuffix(quoted, `"`))
		return out, nil
	case *btf.Enum:
		states := map[string]uint64{"n": 0, "y": 1, "m": 2} // enum libbpf_tristate
		if state, known := states[text]; known && t.Name == "libbpf_tristate" && size == 4 {
			return put(out, order, state), nil
		}
	case *btf.Int:
		if number, ok := integerOption(text, t); ok {
			return put(out, order, number), nil
		}
	}
	return nil, problem.Errorf(problem.KconfigType, "its value %s doesn't fit its type %s", plain.Quote(text), plain.Quote(btftype.Name(variable)))
}

// integerOption returns the value of an option for an integer, a boolean, or a character.
func integerOption(text string, t *btf.Int) (uint64, bool) {
	switch {
	case t.Encoding == btf.Bool && text == "y":
		return 1, true
	case t.Encoding == btf.Bool:
		return 0, text == "n"
	case t.Size == 1 && (text == "y" || text == "n" || text == "m"):
		return uint64(text[0]), true
	}
	bits := int(t.Size) * 8 //nolint:mnd // of a byte
	if t.Encoding == btf.Signed {
		number, err := strconv.ParseInt(text, 0, bits)
		return uint64(number), err == nil //nolint:gosec // the same bits
	}
	number, err := strconv.ParseUint(text, 0, bits)
	return number, err == nil
}

// put writes an integer.
func put(out []byte, order binary.ByteOrder, number uint64) []byte {
	switch len(out) {
	case 1:
		out[0] = byte(number) //nolint:gosec // it was parsed with this size
	case 2:
		order.PutUint16(out, uint16(number)) //nolint:gosec // see above
	case 4:
		order.PutUint32(out, uint32(number)) //nolint:gosec // see above
	case 8:
		order.PutUint64(out, number)
	}
	return out
}
