// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package pins

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

func TestWhatIsNotPinnedFits(t *testing.T) {
	misfits, err := Misfits(t.TempDir(), []reader.Map{{Name: "flows", Type: uint32(ebpf.Hash), KeySize: 4, ValueSize: 96, Pinned: true}})
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
