// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package btftype names types as C does.
package btftype

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Name returns the name of a type, or nothing if there is no short one. Integers are named by sign and width, and
// arrays by their elements and length.
func Name(t btf.Type) string {
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
			return fmt.Sprintf("%s[%d]", Name(element), t.Nelems)
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
