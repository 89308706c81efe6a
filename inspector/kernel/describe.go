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

// Described is what the kernel says in words of an open descriptor, in
// /proc/<pid>/fdinfo: what is behind it, and its id.
type Described struct {
	// Program, Map and Link are ids; a link has its program's as well.
	Program, Map, Link uint32
	// LinkType is the kernel's word for it.
	LinkType string
	// AttachType is the kernel's word for it, a number for some links.
	AttachType string
	// Target is that of an iterator.
	Target string
	// Interface, NetNS and Cgroup are as in Attachment.
	Interface uint32
	NetNS     uint64
	Cgroup    uint64
}

// maxDescription is longer than what the kernel writes of a program, map or link;
// of a link with thousands of addresses the beginning is enough.
const maxDescription = 64 << 10

// Describe reads a file of fdinfo.
func Describe(path string) (Described, error) {
	file, err := os.Open(path)
	if err != nil {
		return Described{}, err //nolint:wrapcheck // it says all
	}
	defer file.Close()
	text := make([]byte, 4096)
	n, err := file.Read(text)
	if err != nil {
		return Described{}, err //nolint:wrapcheck // it says all
	}
	return ParseDescription(text[:n]), nil
}

// ParseDescription parses a file of fdinfo. Lines that it doesn't know are left
// out: each kernel adds some.
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
			d.NetNS, _ = strconv.ParseUint(word, 10, 64) // 0 is none
		case "cgroup_id":
			d.Cgroup, _ = strconv.ParseUint(word, 10, 64) // 0 is none
		}
	}
	return d
}

// number is 0, which no object has, for what is none.
func number(word string) uint32 {
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// describeLink reads of a link what the kernel says in words.
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
