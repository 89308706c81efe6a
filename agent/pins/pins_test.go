// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package pins

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
)

func TestAny(t *testing.T) {
	dir := t.TempDir()
	if Any(filepath.Join(dir, "absent")) {
		t.Error("there are pins in a directory that isn't there")
	}
	for _, name := range []string{"maps.debug", "progs.debug"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "others"), 0o750); err != nil {
		t.Fatal(err)
	}
	if Any(dir) {
		t.Error("directories and the kernel's files are taken for pins")
	}
	if err := os.WriteFile(filepath.Join(dir, "flows"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !Any(dir) {
		t.Error("a pin isn't seen")
	}
}

func TestWhatIsNotPinnedFits(t *testing.T) {
	misfits, err := Misfits(t.TempDir(), []Map{{Name: "flows", Type: ebpf.Hash, KeySize: 4, ValueSize: 96}})
	if len(misfits) > 0 || err != nil {
		t.Errorf("%v, %v", misfits, err)
	}
}

func TestMisfitInWords(t *testing.T) {
	m := Misfit{
		Declared: Map{Name: "flows", Type: ebpf.LRUHash, KeySize: 4, ValueSize: 104},
		Pinned:   Map{Name: "flows", Type: ebpf.Hash, KeySize: 4, ValueSize: 96},
	}
	want := "the pinned map /sys/fs/bpf/flows has type Hash, 4-byte keys, and 96-byte values, but the bytecode declares type LRUHash, 4-byte keys, and 104-byte values"
	if got := m.String(); got != want {
		t.Errorf("%q", got)
	}
}

// An object can have any content.
func FuzzDeclared(f *testing.F) {
	f.Add([]byte("pinning"))
	f.Add([]byte("\x7fELF\x02\x01\x01 pinning"))
	f.Fuzz(func(t *testing.T, object []byte) {
		declared, err := Declared(object)
		for _, m := range declared {
			if m.Name != filepath.Base(m.Name) || m.Name == ".." || err != nil {
				t.Errorf("%q, %v", m.Name, err)
			}
		}
	})
}
