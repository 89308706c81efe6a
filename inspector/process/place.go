// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"path/filepath"
	"slices"
	"strings"
)

// Place is where a process belongs: a container or else a systemd unit, or neither.
type Place struct {
	// Container is the container runtime's id of the container, or of a pod's sandbox.
	Container string
	// Unit is the systemd unit.
	Unit string
}

// placeOf is nowhere where the process has ended.
func placeOf(dir string) Place {
	text, _ := readFile(filepath.Join(dir, "cgroup"))
	return ParseCgroup(string(text))
}

// ParseCgroup tells from /proc/<pid>/cgroup where a process belongs, of cgroup v1
// and v2, with either driver of containerd, CRI-O and Docker. Paths may be relative
// to the reader's own cgroup.
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

// containerIn returns the container of the kubelet's that a cgroup is of, not one
// that it runs itself, nor one that the node runs in.
func containerIn(parts []string) string {
	if i := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "kubepods") }); i >= 0 {
		parts = parts[i:]
	}
	for _, part := range parts {
		// A container is cri-containerd-<id>.scope, crio-<id>.scope or <id>.
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

// unitIn returns the innermost unit of systemd that has processes of its own.
func unitIn(parts []string) string {
	for _, part := range slices.Backward(parts) {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			return part
		}
	}
	return ""
}
