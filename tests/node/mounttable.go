// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// renamed contains the parts of a mount point that are different for each container and
// each pod, with their replacements: ids, the name of a token's volume, and the time of a
// projected file.
var renamed = []struct {
	changes *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{64}`), "<container>"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "<pod>"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access"},
	{regexp.MustCompile(`/\.\.[0-9]{4}(_[0-9]{2}){5}\.[0-9]+`), "/<time>"},
}

// MountTable returns the node's mount table, in order, with a line for each mount: root,
// mount point, options, type, and source. It replaces the numbers that the kernel and the
// container runtime generate.
func MountTable() ([]string, error) {
	table, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the node's mount table: %w", err)
	}
	var lines []string
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		separator := slices.Index(fields, "-")
		if separator < 6 || separator+2 >= len(fields) {
			return nil, fmt.Errorf("mount table has a line of another format: %q", line)
		}
		text := strings.Join(append(slices.Clone(fields[3:6]), fields[separator+1:separator+3]...), " ")
		for _, r := range renamed {
			text = r.changes.ReplaceAllString(text, r.with)
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines, nil
}
