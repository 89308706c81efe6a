// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// sections maps the prefixes of sections for which bpfman has program types to these types, as in the daemon of
// v0.6.0.
var sections = map[string]string{
	"xdp": "xdp", "xdp.frags": "xdp",
	"classifier": "tc",
	"tracepoint": "tracepoint", "tp": "tracepoint",
	"kprobe": "kprobe", "kretprobe": "kretprobe",
	"uprobe": "uprobe", "uprobe.s": "uprobe", "uretprobe": "uretprobe", "uretprobe.s": "uretprobe",
	"fentry": "fentry", "fentry.s": "fentry",
	"fexit": "fexit", "fexit.s": "fexit",
}

// refused reports whether the daemon's loader (aya-obj 0.2.1 in bpfman v0.6.0) doesn't recognize the section. It
// then refuses the whole object.
func (p Program) refused() bool {
	kind, rest, more := strings.Cut(p.Section, "/")
	switch {
	case sections[kind] == "xdp" && more:
		return !slices.Contains([]string{"cpumap", "devmap"}, firstPart(rest))
	case kind == "sk_skb":
		return !slices.Contains([]string{"stream_parser", "stream_verdict"}, firstPart(rest))
	}
	return sections[kind] == "" && !slices.Contains(otherSections, kind)
}

func firstPart(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// otherSections are the sections that the loader recognizes, but for which bpfman has no kind.
var otherSections = []string{
	"cgroup", "cgroup_skb", "freplace", "lirc_mode2", "lsm", "lsm.s", "perf_event", "raw_tp", "raw_tracepoint", "sk_lookup", "sk_msg", "sk_skb",
	"socket", "sockops", "tp_btf",
}

// Problems returns the reasons why the daemon possibly can't load the object.
func (o *Object) Problems() []string {
	var found []string
	if o.Unknown != "" {
		found = append(found, "its maps and variables can't be read: "+o.Unknown)
	}
	for _, p := range o.Programs {
		if p.refused() {
			found = append(found, fmt.Sprintf("the daemon's loader doesn't recognize section %q (%s), and refuses the object: packet filters belong in section classifier; for other sections, see docs/programs.md", p.Section, p.Name))
		}
	}
	return found
}

// Remarks returns what is missing in an object, although the daemon may load it.
func (o *Object) Remarks() []string {
	var found []string
	if o.License == "" {
		found = append(found, `it declares no license, so the daemon declares GPL for it: to declare another one, add the section "license"`)
	}
	if !o.BTF {
		found = append(found, "it has no BTF, so maps in the section .maps can't be loaded, and content of maps can't be decoded: compile it with clang -g")
	}
	return found
}

func programType(section string) string {
	kind, _, _ := strings.Cut(section, "/")
	return cmp.Or(sections[kind], kind)
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

func snakeCase(name string) string {
	return strings.ToLower(wordStart.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}
