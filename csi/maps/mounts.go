// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// List returns the volumes in the mount table.
func (v *Volumes) List() ([]Volume, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var volumes []Volume
	for line := range bytes.Lines(table) {
		volume, ok := parseMount(string(line))
		if !ok {
			continue
		}
		if _, err := Below(v.root, volume.Target); err == nil {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

// parseMount parses a line of mountinfo. It returns false if the line isn't a volume.
func parseMount(line string) (Volume, bool) {
	const mountPoint, kind, device = 4, 1, 2 // the latter two are relative to the separator
	fields := strings.Fields(line)
	separator := slices.Index(fields, "-")
	if separator <= mountPoint || separator+device >= len(fields) || fields[separator+kind] != "bpf" {
		return Volume{}, false
	}
	id, ok := strings.CutPrefix(unescape(fields[separator+device]), source+"/")
	return Volume{ID: id, Target: unescape(fields[mountPoint])}, ok
}

// unescape decodes the kernel's escapes for blanks and backslashes, which have three
// octal digits.
func unescape(field string) string {
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+4 <= len(field) {
			if code, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(field[i])
	}
	return out.String()
}
