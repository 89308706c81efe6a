// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// blocking are the directories in the daemon's container with files that have no end, or that block readers: devices, kernel
// file systems, the daemon's socket, and /run/bpfman. That has the directory of the container runtime, with named pipes for
// each container, and the bpffs with the pins of maps. The kernel prints a map that is read as a file, and ends a reader only
// after it has printed an element, which can take forever.
var blocking = []string{"/dev", "/proc", "/sys", "/host/proc", "/run/bpfman", "/run/bpfman-sock"}

// MayBlock reports whether a clean path may lead to a file that the daemon would never finish reading.
func MayBlock(file string) bool {
	if Below(file, "/var/run") {
		file = strings.TrimPrefix(file, "/var") // it can be a link to /run
	}
	return slices.ContainsFunc(blocking, func(dir string) bool { return Below(file, dir) })
}

// Below reports whether a clean path is a directory or below it.
func Below(file, dir string) bool {
	return file == dir || strings.HasPrefix(file, dir+"/")
}

var (
	// processRoot matches the directories in which the root or working directory of a process appears.
	processRoot = regexp.MustCompile(`^(/host)?/proc/[^/]+(/task/[^/]+)?/(root|cwd)$`)
	// processFile matches the files that a process executes or has mapped.
	processFile = regexp.MustCompile(`^(/host)?/proc/[^/]+(/task/[^/]+)?/(exe|map_files/[^/]+)$`)
)

// targetMayBlock is MayBlock for the target of a uprobe outside of containers. The daemon gets the target as it is. It
// reaches the files of the node, or of a container, through the root of a process, in which the same directories block.
func targetMayBlock(target string) bool {
	at := "/"
	for part := range strings.SplitSeq(target, "/") {
		if at = path.Join(at, part); processRoot.MatchString(at) {
			at = "/"
		}
	}
	return path.IsAbs(target) && MayBlock(at) && !processFile.MatchString(at)
}
