// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/btftype"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/variable"
)

// Variable is a global variable. The globals or the globaldata of an object can set variables in read-only sections.
type Variable struct {
	Name string `json:"name"`
	// Type is the type in the source, such as u32 or u8[8]. It is empty if the file has no BTF.
	Type    string `json:"type,omitempty"`
	Section string `json:"section"`
	// Size is the size in bytes.
	Size uint32 `json:"size"`
	// Default is the value in the file, in the format of globaldata.
	Default []byte `json:"default"`
	// Described is the type for those who write values. It is nil if the file has no BTF.
	Described *reader.Type `json:"-"`
}

// Fact returns what is needed to write a value of the variable.
func (v Variable) Fact() reader.Variable {
	return reader.Variable{Name: v.Name, Section: v.Section, Size: v.Size, Type: v.Described}
}

// Order returns the byte order of the variables.
func (o Object) Order() variable.Order {
	if o.ByteOrder == bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Literal returns the default as a value in the format of globals. It returns false if there are no values of the type.
func (v Variable) Literal(order variable.Order) (string, bool) {
	if v.Described == nil {
		return "", false
	}
	return variable.Decode(v.Default, *v.Described, order)
}

// Constant reports whether a variable can't change while its program runs, and is therefore meant to be set by
// an object.
func (v Variable) Constant() bool { return strings.HasPrefix(v.Section, ".rodata") }

// Value returns the default as a number, or in hexadecimal.
func (v Variable) Value(byteOrder string) string {
	if !integerType.MatchString(v.Type) || !slices.Contains([]int{1, 2, 4, 8}, len(v.Default)) {
		return fmt.Sprintf("0x%x", v.Default)
	}
	var number uint64
	for i := range v.Default {
		if byteOrder != bigEndian {
			i = len(v.Default) - 1 - i
		}
		number = number<<8 | uint64(v.Default[i])
	}
	if !strings.HasPrefix(v.Type, "s") {
		return strconv.FormatUint(number, 10)
	}
	unused := 64 - 8*len(v.Default)                             //nolint:mnd // bits
	return strconv.FormatInt(int64(number<<unused)>>unused, 10) //nolint:gosec // the same bits
}

var integerType = regexp.MustCompile(`^[su](8|16|32|64)$`)

const (
	// maxVariables is the maximum number of variables that are described.
	maxVariables = 1024
	// maxQualified is the maximum depth of types in types, and maxTypeName the maximum length of a type's name.
	maxQualified = 16
	maxTypeName  = 64
)

// describe returns the type of a variable, or nil if the file has no BTF.
func describe(v *btf.Var) *reader.Type {
	if v == nil {
		return nil
	}
	t := &reader.Type{}
	element := v.Type
	for range maxQualified {
		array, is := btf.UnderlyingType(element).(*btf.Array)
		if !is {
			break
		}
		t.Lengths, element = append(t.Lengths, array.Nelems), array.Type
	}
	t.Name = plain.Truncate(plain.Text(sourceName(element)), maxTypeName)
	for _, length := range t.Lengths {
		t.Name += fmt.Sprintf("[%d]", length)
	}
	switch number := btf.UnderlyingType(element).(type) {
	case *btf.Int:
		t.Width = number.Size
		switch number.Encoding {
		case btf.Bool:
			t.Kind = reader.Bool
		case btf.Signed, btf.Char:
			t.Kind = reader.Signed
		case btf.Unsigned:
			t.Kind = reader.Unsigned
		}
	case *btf.Enum:
		t.Kind, t.Width = reader.Unsigned, number.Size
		if number.Signed {
			t.Kind = reader.Signed
		}
	}
	if t.Kind != "" && !slices.Contains([]uint32{1, 2, 4, 8}, t.Width) {
		t.Kind = ""
	}
	return t
}

// sourceName returns the name of a type as the source has it, such as __u16.
func sourceName(t btf.Type) string {
	for range maxQualified {
		switch qualified := t.(type) {
		case *btf.Const:
			t = qualified.Type
		case *btf.Volatile:
			t = qualified.Type
		case *btf.TypeTag:
			t = qualified.Type
		case *btf.Int, *btf.Typedef:
			return t.TypeName()
		case *btf.Pointer:
			return "a pointer"
		default:
			return cmp.Or(btftype.Name(t), t.TypeName(), "not known")
		}
	}
	return "not known"
}

// typeName returns the name of a variable's type. The type is nil if the file has no BTF.
func typeName(v *btf.Var) string {
	if v == nil {
		return ""
	}
	return btftype.Name(v.Type)
}
