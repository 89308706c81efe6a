// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// form is what bpfman makes of the sections with a prefix.
type form struct {
	// kind is the type of the programs, with bpfman's name, and loader the prefix that the daemon's loader (aya-obj
	// 0.2.1 in bpfman v0.6.0) has for them.
	kind, loader string
}

// sections has the prefixes of sections for which bpfman has kinds: those of the loader, and those of libbpf that mean
// the same. With libbpf, programs of multi-probes are attached to many functions at the same time, but the instructions are the
// same as for one.
var sections = map[string]form{
	"xdp": {"xdp", "xdp"}, "xdp.frags": {"xdp", "xdp.frags"},
	"classifier": {"tc", "classifier"}, "tc": {"tc", "classifier"}, "tcx": {"tc", "classifier"}, "action": {"tc", "classifier"},
	"tracepoint": {"tracepoint", "tracepoint"}, "tp": {"tracepoint", "tp"},
	"kprobe": {"kprobe", "kprobe"}, "kprobe.multi": {"kprobe", "kprobe"}, "ksyscall": {"kprobe", "kprobe"},
	"kretprobe": {"kretprobe", "kretprobe"}, "kretprobe.multi": {"kretprobe", "kretprobe"}, "kretsyscall": {"kretprobe", "kretprobe"},
	"uprobe": {"uprobe", "uprobe"}, "uprobe.s": {"uprobe", "uprobe.s"},
	"uprobe.multi": {"uprobe", "uprobe"}, "uprobe.multi.s": {"uprobe", "uprobe.s"},
	"uretprobe": {"uretprobe", "uretprobe"}, "uretprobe.s": {"uretprobe", "uretprobe.s"},
	"uretprobe.multi": {"uretprobe", "uretprobe"}, "uretprobe.multi.s": {"uretprobe", "uretprobe.s"},
	"fentry": {"fentry", "fentry"}, "fentry.s": {"fentry", "fentry.s"},
	"fexit": {"fexit", "fexit"}, "fexit.s": {"fexit", "fexit.s"},
	"lsm": {"lsm", "lsm"}, "lsm.s": {"lsm", "lsm.s"},
}

// Prefixes of names that the loader accepts with any text behind them.
const (
	packetPrefix = "classifier/"
	// unusedPrefix is for functions that bpfman can't load, but that others call.
	unusedPrefix = "socket/"
)

// loaderName returns the name that a section needs so that the daemon's loader recognizes it. It returns "" if bpfman
// has no kind for its programs.
func loaderName(section string) string {
	prefix, rest, more := strings.Cut(section, "/")
	known, ok := sections[prefix]
	switch first, _, _ := strings.Cut(rest, "/"); {
	case isOldXDP(prefix):
		return "xdp"
	case !ok:
		return ""
	case known.kind == "xdp" && (first == "cpumap" || first == "devmap"):
		return "" // such programs are in maps, not on interfaces
	case known.kind == "xdp" && more:
		return known.loader // the loader would refuse the rest
	case known.loader != prefix:
		return known.loader + "/" + section
	}
	return section
}

// isOldXDP reports whether a prefix is one that libbpf accepted for XDP before v1.0, such as xdp_prog.
func isOldXDP(prefix string) bool { return strings.HasPrefix(prefix, "xdp_") }

// since returns which daemon can load programs that the one of v0.6 can't load.
func since(section, kind string) string {
	switch {
	case kind == "lsm":
		return "the daemon in Go"
	case loaderName(section) != "":
		return ""
	default:
		return "no version of the daemon up to v0.6"
	}
}

// Problems returns the reasons why nodes refuse the object, or can't load it.
func (o *Object) Problems() []string {
	var found []string
	if o.Unknown != "" {
		found = append(found, "its maps and variables can't be read: "+o.Unknown)
	}
	if !slices.ContainsFunc(o.Programs, func(p Program) bool { return p.Unsupported == "" }) {
		found = append(found, "none of its programs can be loaded")
	}
	return found
}

// Remarks returns what is missing in an object, although the daemon may load it.
func (o *Object) Remarks() []string {
	var found []string
	if o.License == "" {
		found = append(found, `it declares no license, so the daemon declares GPL for it: to declare another one, add the section "license"`)
	}
	if o.License != "" && !slices.Contains(licensesOfGPL, o.License) && slices.ContainsFunc(o.Programs, func(p Program) bool { return p.Type == "lsm" }) {
		found = append(found, fmt.Sprintf("its license is %q, and the kernel loads LSM programs only with one of: %s", o.License, strings.Join(licensesOfGPL, ", ")))
	}
	if !o.BTF {
		found = append(found, "it has no BTF, so maps in the section .maps can't be loaded, and content of maps can't be decoded: compile it with clang -g")
	}
	for _, m := range o.Maps {
		if entries := usualEntries(ebpf.MapType(m.Number)); m.MaxEntries == 0 && entries > 0 {
			found = append(found, fmt.Sprintf("its map %s has no max_entries, so nodes create it with %d: to change that, set max_entries in the source", m.Name, entries))
		}
		if m.Unprintable {
			found = append(found, fmt.Sprintf("its map %s has more than %d numbers in a key or a value, so nodes create it without types, and it can't be read as text", m.Name, maxPrinted))
		}
		if m.Filled {
			found = append(found, fmt.Sprintf("its map %s has content, which the daemon doesn't write: until a program of yours writes it, it is empty, and tail calls through it do nothing", m.Name))
		}
	}
	return found
}

// licensesOfGPL are the licenses that the kernel takes for compatible with the GPL (license_is_gpl_compatible in
// linux/license.h).
var licensesOfGPL = []string{"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"}

func programType(section string) string {
	prefix, _, _ := strings.Cut(section, "/")
	if isOldXDP(prefix) {
		return "xdp"
	}
	return cmp.Or(sections[prefix].kind, prefix)
}
