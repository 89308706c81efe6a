// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"path/filepath"
	"slices"
	"strings"
)

// Place describes what a process belongs to: a container, a systemd unit, or neither.
type Place struct {
	// Container is the container runtime's id of the container or the pod's sandbox.
	Container string
	// Unit is the systemd unit.
	Unit string
}

// placeOf returns an empty Place if the process has ended.
func placeOf(dir string) Place {
	text, _ := readFile(filepath.Join(dir, "cgroup"))
	return ParseCgroup(string(text))
}

// ParseCgroup finds out from /proc/<pid>/cgroup what a process belongs to. It supports
// cgroup v1 and v2, and both cgroup drivers of containerd, CRI-O, and Docker. Paths can
// be relative to the reader's cgroup.
func ParseCgroup(text string) Place {
	var place Place
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		parts := strings.Split(fields[2], "/")
		if container := containerIn(parts); container != "" {
			return Place{Container: container}
		}
		if unit := unitIn(parts); unit != "" && place.Unit == "" {
			place.Unit = unit
		}
	}
	return place
}

// containerIn returns the kubelet's container that a cgroup belongs to. It ignores
// nested containers, and a container that contains the whole node.
func containerIn(parts []string) string {
	if i := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "kubepods") }); i >= 0 {
		parts = parts[i:]
	}
	for _, part := range parts {
		// The name is cri-containerd-<id>.scope, crio-<id>.scope, or <id>.
		name := strings.TrimSuffix(part, ".scope")
		id := name[strings.LastIndexAny(name, "-:")+1:]
		if isContainerID(id) && !strings.HasPrefix(name, "crio-conmon-") {
			return id
		}
	}
	return ""
}

const containerIDLength = 64

func isContainerID(text string) bool {
	return len(text) == containerIDLength && strings.Trim(text, "0123456789abcdef") == ""
}

// unitIn returns the innermost systemd unit that can contain processes.
func unitIn(parts []string) string {
	for _, part := range slices.Backward(parts) {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			return part
		}
	}
	return ""
}
