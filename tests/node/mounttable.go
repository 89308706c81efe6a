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

// What changes in a mount point with each container, and with each pod.
var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	netnsID     = regexp.MustCompile(`/netns/cni-[0-9a-f-]+`)
)

// MountTable is the node's whole mount table, in order, a line for each mount: root, mount
// point, options, type and source, without the numbers that the kernel and the container
// runtime give anew each time.
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
		lines = append(lines, netnsID.ReplaceAllString(podUID.ReplaceAllString(containerID.ReplaceAllString(text, "<container>"), "<pod>"), "/netns/<pod>"))
	}
	slices.Sort(lines)
	return lines, nil
}
