// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package globals has the names of the maps in which the kernel keeps the global variables of programs: those of the
// sections .bss, .data, and .rodata of the object, possibly with a suffix.
package globals

import "strings"

// IsSection reports whether the name of a map is that of a section. Names of declared maps are those of C variables, which
// have no dots.
func IsSection(name string) bool { return strings.HasPrefix(name, ".") }

// File returns the name of a map's file in a volume. It differs from the map's name only for sections, because bpffs
// reserves names with a dot: .bss is the file bss, and .data.limits is data_limits.
func File(name string) string {
	suffix, is := strings.CutPrefix(name, ".")
	if !is {
		return name
	}
	return strings.ReplaceAll(suffix, ".", "_")
}
