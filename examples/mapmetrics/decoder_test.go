// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/bpfman/bpfman-operator/examples/maptext"
)

func labelOf(tb testing.TB, size int, names ...string) *Label {
	tb.Helper()
	l := &Label{Name: "a", Size: size}
	for _, name := range names {
		l.Decoders = append(l.Decoders, Decoder{Name: name})
	}
	if err := l.complete(); err != nil {
		tb.Fatal(err)
	}
	return l
}

// hostOf returns a node with files in a directory, and the id of one of its control groups.
func hostOf(t *testing.T) (*Host, string, uint64) {
	t.Helper()
	root := t.TempDir()
	group := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-" + strings.Repeat("ab", 32) + ".scope"
	if err := os.MkdirAll(filepath.Join(root, "cgroup", group), 0o755); err != nil {
		t.Fatal(err)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(root, "cgroup", group), &stat); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"partitions": "major minor  #blocks  name\n\n   8        1   1024 sda1\n",
		"kallsyms":   "0000000000001000 T first\n0000000000002000 t second\n0000000000002800 d data\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Host{Proc: root, Cgroups: filepath.Join(root, "cgroup")}, "/" + group, stat.Ino
}

func TestDecoders(t *testing.T) {
	host, group, id := hostOf(t)
	u := func(n uint64, size int) []byte { return integer(n, size) }
	static := &Label{Size: 4, Decoders: []Decoder{{Name: "uint"}, {Name: "static_map", StaticMap: map[string]string{"1": "read"}}}}
	lenient := &Label{Size: 4, Decoders: []Decoder{{Name: "uint"}, {Name: "static_map", AllowUnknown: true}}}
	matching := &Label{Size: 16, Decoders: []Decoder{{Name: "string"}, {Name: "regexp", Regexps: []string{"^(kswapd).*$", "^systemd-journal$"}}}}
	if err := matching.complete(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		label *Label
		in    []byte
		want  string
	}{
		"uint":           {labelOf(t, 2, "uint"), u(8080, 2), "8080"},
		"no decoder":     {labelOf(t, 8), u(7, 8), "7"},
		"hex":            {labelOf(t, 3, "hex"), []byte{1, 2, 0xff}, "0102ff"},
		"string":         {labelOf(t, 8, "string"), []byte("eth0\x00\x00\x00\x00"), "eth0"},
		"not UTF-8":      {labelOf(t, 2, "string"), []byte{'a', 0xff}, "a\uFFFD"},
		"IPv4":           {labelOf(t, 4, "inet_ip"), []byte{10, 1, 2, 3}, "10.1.2.3"},
		"IPv6":           {labelOf(t, 16, "inet_ip"), []byte{0xfd, 15: 1}, "fd00::1"},
		"IPv4 in IPv6":   {labelOf(t, 16, "inet_ip"), []byte{10: 0xff, 0xff, 10, 1, 2, 3}, "10.1.2.3"},
		"MAC":            {labelOf(t, 8, "mac"), []byte{2, 0, 0, 0, 0, 0xfe, 9, 9}, "02:00:00:00:00:fe"},
		"port":           {labelOf(t, 2, "port"), []byte{0x1f, 0x90}, "8080"},
		"static":         {static, u(1, 4), "read"},
		"not static":     {static, u(3, 4), "unknown:3"},
		"allow unknown":  {lenient, u(3, 4), "3"},
		"group":          {matching, []byte("kswapd0\x00"), "kswapd"},
		"match":          {matching, []byte("systemd-journal\x00"), "systemd-journal"},
		"syscall":        {labelOf(t, 8, "uint", "syscall"), u(uint64(syscall.SYS_KILL), 8), "kill"},
		"no syscall":     {labelOf(t, 8, "uint", "syscall"), u(9999, 8), "unknown:9999"},
		"errno":          {labelOf(t, 8, "uint", "errno"), u(1, 8), "EPERM"},
		"interface":      {labelOf(t, 4, "uint", "ifname"), u(1, 4), "lo"},
		"device":         {labelOf(t, 4, "majorminor"), u(8<<20|1, 4), "sda1"},
		"no device":      {labelOf(t, 4, "majorminor"), u(9<<20|2, 4), "9:2"},
		"symbol":         {labelOf(t, 8, "ksym"), u(0x2004, 8), "second"},
		"no symbol":      {labelOf(t, 8, "ksym"), u(0x10, 8), "0x10"},
		"cgroup":         {labelOf(t, 8, "uint", "cgroup"), u(id, 8), group},
		"no cgroup":      {labelOf(t, 8, "uint", "cgroup"), u(1<<60, 8), "unknown:1152921504606846976"},
		"pod":            {labelOf(t, 8, "uint", "cgroup", "pod_uid"), u(id, 8), "01234567-89ab-cdef-0123-456789abcdef"},
		"container":      {labelOf(t, 8, "uint", "cgroup", "container_id"), u(id, 8), strings.Repeat("ab", 32)},
		"pod of nothing": {labelOf(t, 8, "uint", "cgroup", "pod_uid"), u(1<<60, 8), ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := append(c.in, make([]byte, max(0, c.label.Size-len(c.in)))...)
			if got, err := c.label.value(part{bytes: in}, host); err != nil || got != c.want {
				t.Errorf("got %q, error %v, want %q", got, err, c.want)
			}
		})
	}
	if _, err := matching.value(part{bytes: make([]byte, 16)}, host); !errors.Is(err, errSkip) {
		t.Errorf("no match: %v", err)
	}
}

// The bytes of what the kernel prints for a key.
func TestEncode(t *testing.T) {
	// What Linux 6.18 prints for struct in6_addr, a union of arrays with elements of 1, 2, and 4 bytes.
	const address = "{{['\xfd',],[253,0,0,0,0,0,0,256,],[253,0,0,16777216,],},}"
	for name, c := range map[string]struct {
		text string
		size int
		want []byte
	}{
		"number":                    {"8080", 2, integer(8080, 2)},
		"negative":                  {"-1", 4, []byte{0xff, 0xff, 0xff, 0xff}},
		"enumerator":                {"TCP_ESTABLISHED", 4, nil},
		"array of numbers":          {"[1,0,0,2,]", 16, append(append(integer(1, 4), make([]byte, 8)...), integer(2, 4)...)},
		"bytes":                     {"[10,1,2,3,]", 4, []byte{10, 1, 2, 3}},
		"string":                    {"['a','b',]", 16, []byte("ab")},
		"MAC up to its first zero":  {"[2,]", 6, nil},
		"MAC that begins with zero": {"[]", 6, nil},
		"cut bytes or numbers":      {"[2,3,]", 8, nil},
		"numbers":                   {"[300,1,]", 8, append(integer(300, 4), integer(1, 4)...)},
		"odd size":                  {"[300,1,]", 6, nil},
		"address":                   {address, 16, []byte{0xfd, 15: 1}},
		"structure around a number": {"{7,}", 4, integer(7, 4)},
		"more than fit":             {"[1,2,3,]", 2, nil},
		"nothing":                   {"{}", 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
				t.Skip("the data is that of a little-endian machine")
			}
			for entry, err := range maptext.Parse(strings.NewReader(c.text + ": 1\n")) {
				if err != nil {
					t.Fatal(err)
				}
				if got := encode(entry.Key, c.size); string(got) != string(c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}

// FuzzLabel decodes any key as text and as bytes. No matter what a map contains, a label is UTF-8, which Prometheus requires.
func FuzzLabel(f *testing.F) {
	f.Add("{['a',0,],{{[1,2,],},},7,}: 1\n", []byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(4))
	f.Add("[2,0,]: 1\n", []byte{}, uint8(16))
	var labels []*Label
	for name := range decoders {
		labels = append(labels, labelOf(f, 1, name), labelOf(f, 1, "uint", name), labelOf(f, 1, "string", name))
	}
	host := &Host{Proc: f.TempDir(), Cgroups: f.TempDir()}
	f.Fuzz(func(t *testing.T, text string, raw []byte, size uint8) {
		keys := []key{byteKey(raw)}
		for entry, err := range maptext.Parse(strings.NewReader(text)) {
			if err == nil {
				keys = append(keys, textKey{entry.Key})
			}
		}
		for _, k := range keys {
			for _, l := range labels {
				l.Size = int(size)
				parts, err := k.parts([]Label{*l})
				if err != nil {
					continue
				}
				if value, err := l.value(parts[0], host); err == nil && !utf8.ValidString(value) {
					t.Errorf("%q isn't UTF-8", value)
				}
			}
		}
	})
}
