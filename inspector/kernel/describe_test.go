// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestParseDescription(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Described
	}{
		"a program": {"pos:\t0\nflags:\t02000002\nprog_type:\t1\nprog_tag:\ta04f5eef06a7f555\nprog_id:\t7\nrun_time_ns:\t9\n", Described{Program: 7}},
		"a map":     {"map_type:\t2\nkey_size:\t4\nmemlock:\t4096\nmap_id:\t8\nfrozen:\t0\nowner_prog_type:\t6\n", Described{Map: 8}},
		"a link of an interface": {
			"link_type:\tBPF_LINK_TYPE_XDP\nlink_id:\t9\nprog_tag:\ta0\nprog_id:\t7\nifindex:\t2\n", Described{Program: 7, Link: 9, LinkType: "BPF_LINK_TYPE_XDP", Interface: 2},
		},
		"an iterator":         {"link_type:\titer\nlink_id:\t9\nprog_id:\t7\ntarget_name:\tbpf_map\n", Described{Program: 7, Link: 9, LinkType: "iter", Target: "bpf_map"}},
		"a link of a cgroup":  {"link_type:\tcgroup\nlink_id:\t9\nprog_id:\t7\ncgroup_id:\t1\nattach_type:\t1\n", Described{Program: 7, Link: 9, LinkType: "cgroup", Cgroup: 1, AttachType: "1"}},
		"something else":      {"pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1060\n", Described{}},
		"nothing":             {"", Described{}},
		"numbers that aren't": {"prog_id:\t-1\nmap_id:\t4294967296\nlink_id:\tx\ncgroup_id:\t\n", Described{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseDescription([]byte(c.text)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseDescription(f *testing.F) {
	f.Add([]byte("link_type:\titer\nlink_id:\t9\nprog_id:\t7\ntarget_name:\tbpf_map\n"))
	f.Add([]byte(":\n::\nprog_id"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := ParseDescription(text)
		for _, word := range []string{d.LinkType, d.AttachType, d.Target} {
			if strings.Contains(word, "\n") || !bytes.Contains(text, []byte(word)) {
				t.Errorf("%q isn't a word of %q", word, text)
			}
		}
	})
}

// btfOf returns BTF with types of some kinds, each with the number of members that it
// claims.
func btfOf(t *testing.T, strings string, types ...[]byte) *bytes.Reader {
	t.Helper()
	var body bytes.Buffer
	for _, one := range types {
		body.Write(one)
	}
	header := btfHeader{Magic: btfMagic, Version: 1, HeaderLength: btfHeaderSize, TypeLength: uint32(body.Len()), StringOffset: uint32(body.Len()), StringLength: uint32(len(strings))}
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, header); err != nil {
		t.Fatal(err)
	}
	out.Write(body.Bytes())
	out.WriteString(strings)
	return bytes.NewReader(out.Bytes())
}

// btfType returns a type of a kind, with the bytes that follow it.
func btfType(name, kind, members uint32, extra int) []byte {
	out := make([]byte, 12+extra)
	binary.NativeEndian.PutUint32(out, name)
	binary.NativeEndian.PutUint32(out[4:], kind<<24|members)
	return out
}

func TestTypeName(t *testing.T) {
	const integer, array, structure, enum, function, prototype = 1, 3, 4, 6, 12, 13
	base := btfOf(t, "\x00int\x00one\x00",
		btfType(1, integer, 0, 4), btfType(0, array, 0, 12), btfType(0, structure, 3, 36), btfType(0, enum, 2, 16), btfType(0, prototype, 1, 8), btfType(5, function, 1, 0))
	module := btfOf(t, "two\x00", btfType(0, prototype, 0, 0), btfType(9, function, 0, 0))
	for id, want := range map[uint32]string{1: "int", 2: "", 6: "one", 8: "two"} {
		if got, err := typeName(id, base, module); got != want || err != nil {
			t.Errorf("type %d is %q, %v, want %q", id, got, err, want)
		}
	}
	for _, id := range []uint32{9, 1000} {
		if got, err := typeName(id, base, module); !errors.Is(err, errNoType) {
			t.Errorf("type %d is %q, %v, and there is none", id, got, err)
		}
	}
	if _, err := typeName(1, bytes.NewReader([]byte("not BTF, but long enough for a header"))); err == nil {
		t.Error("what isn't BTF was read")
	}
}

func TestAttachType(t *testing.T) {
	for number, want := range map[uint32]string{
		24: "fentry", 25: "fexit", 26: "fmod_ret", 27: "lsm", 28: "iter", 42: "kprobe_multi", 46: "tcx/ingress", 47: "tcx/egress",
		48: "uprobe_multi", 54: "netkit/primary", 0: "cgroup_inet_ingress", 36: "sk_lookup", 9999: "9999",
	} {
		if got := AttachType(number); got != want {
			t.Errorf("%d is %s, want %s", number, got, want)
		}
	}
}
