// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/btftype"
)

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

// typeName returns the name of a variable's type. The type is nil if the file has no BTF.
func typeName(v *btf.Var) string {
	if v == nil {
		return ""
	}
	return btftype.Name(v.Type)
}
