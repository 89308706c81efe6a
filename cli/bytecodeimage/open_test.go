// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// executable returns an executable that contains the parts, with other bytes between them.
func executable(tb testing.TB, machine elf.Machine, parts ...[]byte) []byte {
	tb.Helper()
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT)}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	content, err := binary.Append(nil, binary.LittleEndian, header)
	if err != nil {
		tb.Fatal(err)
	}
	for _, part := range parts {
		content = append(append(content, elf.ELFMAG+" is the begin of:"...), part...)
	}
	return append(content, "the end"...)
}

func TestOpen(t *testing.T) {
	one, two := file(t, counting, "").Content, file(t, another, "").Content
	for name, c := range map[string]struct {
		content []byte
		want    []File
		err     string
	}{
		"counter.o":             {one, []File{{"counter.o", one, ""}}, ""},
		"counter_arm64_bpfel.o": {one, []File{{"counter_arm64_bpfel.o", one, "arm64"}}, ""},
		"counter_bpfel.o":       {one, []File{{"counter_bpfel.o", one, "bpfel"}}, ""},
		"text.o":                {[]byte("no object"), []File{{"text.o", []byte("no object"), ""}}, ""},
		"syscount":              {executable(t, elf.EM_X86_64, one), []File{{"syscount.o", one, "amd64"}}, ""},
		"twice":                 {executable(t, elf.EM_AARCH64, one, one), []File{{"twice.o", one, "arm64"}}, ""},
		"of-a-machine":          {executable(t, elf.EM_MIPS, one), []File{{"of-a-machine.o", one, ""}}, ""},
		"libtools.so.1":         {executable(t, elf.EM_S390, one, two), []File{{"libtools-1.o", one, "s390x"}, {"libtools-2.o", two, "s390x"}}, ""},
		"ls":                    {executable(t, elf.EM_X86_64), nil, "ls is an executable or a library without an eBPF object"},
		"cut":                   {executable(t, elf.EM_X86_64, one[:len(one)/2]), nil, "cut is an executable or a library without an eBPF object"},
		"absent":                {nil, nil, "absent: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if c.content != nil {
				if err := os.WriteFile(path, c.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Open(path)
			if err != nil || c.err != "" {
				if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			same := func(a, b File) bool {
				return a.Name == b.Name && a.Platform == b.Platform && bytes.Equal(a.Content, b.Content)
			}
			if !slices.EqualFunc(got, c.want, same) {
				t.Errorf("got %d files, the first %s for %q", len(got), got[0].Name, got[0].Platform)
			}
		})
	}
}

// FuzzEmbedded checks that no content makes the search panic, or find something else than ELF files.
func FuzzEmbedded(f *testing.F) {
	f.Add(executable(f, elf.EM_X86_64, file(f, counting, "").Content))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, object := range embedded(content) {
			if !bytes.HasPrefix(object, []byte(elf.ELFMAG)) || !bytes.Contains(content, object) {
				t.Errorf("found %.20q of %d bytes", object, len(object))
			}
		}
	})
}
