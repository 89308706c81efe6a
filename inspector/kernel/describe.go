// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Described is the kernel's textual description of an open file descriptor, in
// /proc/<pid>/fdinfo: what it refers to, and the id.
type Described struct {
	// Program, Map, and Link are ids. A link also has the id of its program.
	Program, Map, Link uint32
	// LinkType is the kernel's name for the type of the link.
	LinkType string
	// AttachType is the kernel's name for the attach type. For some links, it is a
	// number.
	AttachType string
	// Target is the target of an iterator.
	Target string
	// Interface, NetNS, and Cgroup have the same meaning as in Attachment.
	Interface uint32
	NetNS     uint64
	Cgroup    uint64
}

// maxDescription is longer than the kernel's description of a program, map, or link. For
// a link with thousands of addresses, the beginning is enough.
const maxDescription = 64 << 10

// Describe reads a file in fdinfo.
func Describe(path string) (Described, error) {
	file, err := os.Open(path)
	if err != nil {
		return Described{}, err
	}
	defer file.Close()
	text := make([]byte, 4096)
	n, err := file.Read(text)
	if err != nil {
		return Described{}, err
	}
	return ParseDescription(text[:n]), nil
}

// ParseDescription parses the content of a file in fdinfo. It ignores unknown lines,
// because new kernels add lines.
func ParseDescription(text []byte) Described {
	var d Described
	if len(text) > maxDescription {
		text = text[:maxDescription]
	}
	for line := range bytes.Lines(text) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		word := string(bytes.TrimSpace(value))
		switch string(key) {
		case "prog_id":
			d.Program = number(word)
		case "map_id":
			d.Map = number(word)
		case "link_id":
			d.Link = number(word)
		case "link_type":
			d.LinkType = word
		case "attach_type":
			d.AttachType = word
		case "target_name":
			d.Target = word
		case "ifindex":
			d.Interface = number(word)
		case "netns_ino":
			d.NetNS, _ = strconv.ParseUint(word, 10, 64) // 0 means none
		case "cgroup_id":
			d.Cgroup, _ = strconv.ParseUint(word, 10, 64) // 0 means none
		}
	}
	return d
}

// number returns 0 if word isn't a number. No object has the id 0.
func number(word string) uint32 {
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// describeLink reads the kernel's textual description of a link.
func describeLink(id uint32, fd int) (Link, error) {
	d, err := Describe(fmt.Sprintf("/proc/thread-self/fdinfo/%d", fd))
	if err != nil {
		return Link{}, fmt.Errorf("read link %d: %w", id, err)
	}
	kind := strings.TrimPrefix(d.LinkType, "BPF_LINK_TYPE_")
	l := Link{ID: id, Program: d.Program, Attachment: Attachment{
		Type: kind, Interface: d.Interface, NetNS: d.NetNS, Cgroup: d.Cgroup, Target: d.Target,
	}}
	switch kind {
	case "perf_event", "perf":
		l.Type = perfEvent
	case "struct_ops", "sockmap":
		l.Map = d.Map
		if attach, err := strconv.ParseUint(d.AttachType, 10, 32); err == nil && kind == "sockmap" {
			l.Type = AttachType(uint32(attach))
		}
	case "cgroup", "netns", "tcx", "netkit":
		if attach, err := strconv.ParseUint(d.AttachType, 10, 32); err == nil {
			l.Type = AttachType(uint32(attach))
		}
	}
	return l, nil
}
