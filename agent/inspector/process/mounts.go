// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mount is a mount in a mount namespace.
type Mount struct {
	// Device is the device as major:minor.
	Device string
	// Root is the mounted directory within the file system. Point is the mount point.
	Root, Point string
	// Type is the type of the file system, such as bpf.
	Type string
}

// Mounts returns the mounts with the given types that a process sees.
func Mounts(proc string, pid int, types ...string) ([]Mount, error) {
	file, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	defer file.Close()
	mounts, err := parseMounts(file, types)
	if err != nil {
		return nil, fmt.Errorf("read mounts of process %d: %w", pid, err)
	}
	return mounts, nil
}

// parseMounts parses /proc/<pid>/mountinfo. It ignores malformed lines.
func parseMounts(text io.Reader, types []string) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewReader(text)
	for {
		line, err := lines.ReadString('\n')
		if mount, ok := parseMount(line); ok && slices.Contains(types, mount.Type) {
			mounts = append(mounts, mount)
		}
		if errors.Is(err, io.EOF) {
			return mounts, nil
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller wraps it
		}
	}
}

// parseMount parses a line. It has the fields id, parent, device, root, point, options,
// any number of tags, a dash, type, source, and options.
func parseMount(line string) (Mount, bool) {
	const device, root, point, tags = 2, 3, 4, 6
	before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	fields := strings.Split(before, " ")
	if !ok || len(fields) < tags {
		return Mount{}, false
	}
	kind, _, _ := strings.Cut(after, " ")
	return Mount{Device: fields[device], Root: unescape(fields[root]), Point: unescape(fields[point]), Type: kind}, true
}

// unescape decodes the kernel's escapes for spaces, tabs, newlines, and backslashes,
// such as \040.
func unescape(text string) string {
	const digits = 3
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, `\`)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after
		if len(after) >= digits {
			if code, err := strconv.ParseUint(after[:digits], 8, 8); err == nil {
				out.WriteByte(byte(code))
				text = after[digits:]
				continue
			}
		}
		out.WriteByte('\\')
	}
}
