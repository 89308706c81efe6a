// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// TestPrintedByTheKernel decodes a key with a MAC address and an IPv6 address: the bytes, and what this kernel prints. A
// part that the kernel doesn't print as a whole is an error, not another address.
func TestPrintedByTheKernel(t *testing.T) {
	prerequisite.NeedsRoot(t, "maps of the kernel are for root alone")
	dir := t.TempDir()
	sandbox.MountBPFFS(t, dir)
	u8, u16, u32 := &btf.Int{Name: "unsigned char", Size: 1}, &btf.Int{Name: "unsigned short", Size: 2}, &btf.Int{Name: "unsigned int", Size: 4}
	array := func(n uint32, of btf.Type) *btf.Array { return &btf.Array{Type: of, Nelems: n, Index: u32} }
	address := &btf.Struct{Name: "in6_addr", Size: 16, Members: []btf.Member{{Name: "in6_u", Type: &btf.Union{Size: 16, Members: []btf.Member{
		{Name: "u6_addr8", Type: array(16, u8)}, {Name: "u6_addr16", Type: array(8, u16)}, {Name: "u6_addr32", Type: array(4, u32)},
	}}}}}
	key := &btf.Struct{Name: "key", Size: 24, Members: []btf.Member{{Name: "mac", Type: array(8, u8)}, {Name: "address", Type: address, Offset: 64}}}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "flows", Type: ebpf.Hash, KeySize: 24, ValueSize: 4, MaxEntries: 4, Key: key, Value: u32})
	if err != nil {
		prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
	}
	defer m.Close()
	path := filepath.Join(dir, "flows")
	if err := m.Put([]byte{0: 2, 5: 0xfe, 8: 0xfd, 23: 1}, uint32(5)); err != nil {
		t.Fatal(err)
	}
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	labels := []Label{*labelOf(t, 8, "mac"), *labelOf(t, 16, "inet_ip")}
	for name, elements := range map[string]func(func(element, error) bool){"bytes": byteElements(m), "text": textElements(path)} {
		for e, err := range elements {
			if err != nil {
				t.Fatal(err)
			}
			parts, err := e.key.parts(labels)
			if err != nil {
				t.Fatal(err)
			}
			mac, err := labels[0].value(parts[0], &Host{})
			if name == "bytes" && mac != "02:00:00:00:00:fe" || name == "text" && (err == nil || !strings.Contains(err.Error(), "read the map with bpf(2)")) {
				t.Errorf("%s: MAC address %q, %v", name, mac, err)
			}
			if ip, err := labels[1].value(parts[1], &Host{}); err != nil || ip != "fd00::1" {
				t.Errorf("%s: IP address %q, %v", name, ip, err)
			}
		}
	}
}
