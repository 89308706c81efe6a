// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// typeName returns the name of a variable's type. The type is nil if the file has no BTF.
func typeName(v *btf.Var) string {
	if v == nil {
		return ""
	}
	return btftype.Name(v.Type)
}
