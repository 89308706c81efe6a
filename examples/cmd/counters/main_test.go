// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// A map that disappears from the volume isn't kept in the kernel.
func TestVanishedMapsAreClosed(t *testing.T) {
	prerequisite.NeedsRoot(t, "mounting a bpffs needs CAP_SYS_ADMIN")
	for name, only := range map[string]string{"all maps": "", "named maps": "stays,goes"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sandbox.MountBPFFS(t, dir)
			for _, name := range []string{"stays", "goes"} {
				m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
				if err != nil {
					prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
				}
				if err := m.Pin(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				m.Close()
			}
			before, open := openMaps(t), pins{}
			if err := open.report(dir, only); err != nil {
				t.Fatal(err)
			}
			if opened := openMaps(t) - before; opened != 2 {
				t.Fatalf("%d maps are open", opened)
			}
			if err := os.Remove(filepath.Join(dir, "goes")); err != nil {
				t.Fatal(err)
			}
			if err := open.report(dir, only); (err != nil) != (only != "") {
				t.Error(err)
			}
			if opened := openMaps(t) - before; opened != 1 {
				t.Errorf("%d maps are open, of one in the volume", opened)
			}
			_ = open["stays"].Close()
		})
	}
}

// openMaps counts the maps that this process has open.
func openMaps(t *testing.T) (count int) {
	t.Helper()
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && target == "anon_inode:bpf-map" {
			count++
		}
	}
	return count
}
