// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// made creates a map in the kernel.
func made(t *testing.T, spec *ebpf.MapSpec) (*ebpf.Map, uint32) {
	t.Helper()
	prerequisite.NeedsRoot(t, "maps of the kernel are for root alone")
	m, err := ebpf.NewMap(spec)
	if err != nil {
		prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { m.Close() })
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return m, uint32(id)
}

// dumped returns the lines of a dump, in JSON.
func dumped(t *testing.T, id uint32, limit int) []string {
	t.Helper()
	m, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var lines []string
	err = m.Dump(t.Context(), limit, func(line live.DumpLine) error {
		line.Map = nil // its id is different each time
		text, err := json.Marshal(line)
		lines = append(lines, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines[1:]
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDumpByTypes(t *testing.T) {
	value := &btf.Struct{Name: "counter", Size: 16, Members: []btf.Member{{Name: "packets", Type: u64}, {Name: "port", Type: be16, Offset: 64}}}
	m, id := made(t, &ebpf.MapSpec{Name: "typed", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 2, Key: u32, Value: value})
	if err := m.Put(uint32(1), laidOut(t, uint64(12), [8]byte{0x1f, 0x90})); err != nil {
		t.Fatal(err)
	}
	wantLines(t, dumped(t, id, 0),
		`{"entry":{"key":0,"value":{"packets":0,"port":0}}}`,
		`{"entry":{"key":1,"value":{"packets":12,"port":8080}}}`,
		`{"end":{"entries":2}}`)
	wantLines(t, dumped(t, id, 1),
		`{"entry":{"key":0,"value":{"packets":0,"port":0}}}`,
		`{"end":{"entries":1,"truncated":true}}`)
}

func TestDumpPerCPU(t *testing.T) {
	m, id := made(t, &ebpf.MapSpec{Name: "percpu", Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 4, MaxEntries: 2, Key: u32, Value: u32})
	values := make([]uint32, ebpf.MustPossibleCPU())
	total := 0
	for i := range values {
		values[i] = uint32(i + 1)
		total += i + 1
	}
	if err := m.Put(uint32(5), values); err != nil {
		t.Fatal(err)
	}
	perCPU, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := json.Marshal(total)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, dumped(t, id, 0), `{"entry":{"key":5,"value":`+string(sum)+`,"perCPU":`+string(perCPU)+`}}`, `{"end":{"entries":1}}`)
}

func TestNotToBeDumped(t *testing.T) {
	_, id := made(t, &ebpf.MapSpec{Name: "events", Type: ebpf.RingBuf, MaxEntries: 4096})
	if _, err := Open(id); err == nil || !strings.Contains(err.Error(), "type ringbuf can't be dumped: it has no entries; to show its new events, use kubectl bpfman tail") {
		t.Errorf("got %v", err)
	}
}

var section = &btf.Datasec{Name: ".bss", Size: 12, Vars: []btf.VarSecinfo{
	{Type: &btf.Var{Name: "kills", Type: u64, Linkage: btf.GlobalVar}, Offset: 0, Size: 8},
	{Type: &btf.Var{Name: "port", Type: be16, Linkage: btf.GlobalVar}, Offset: 8, Size: 2},
}}

const (
	kills = `{"entry":{"key":"kills","value":7,"variable":{"offset":0,"size":8,"type":"u64"}}}`
	other = `{"entry":{"key":"port","value":8080,"variable":{"offset":8,"size":2,"type":"u16"}}}`
)

// libbpf and cilium/ebpf tell the kernel the types of the variables.
func TestDumpSection(t *testing.T) {
	m, id := made(t, &ebpf.MapSpec{Name: "tool.bss", Type: ebpf.Array, KeySize: 4, ValueSize: 12, MaxEntries: 1, Key: &btf.Void{}, Value: section})
	if err := m.Put(uint32(0), laidOut(t, uint64(7), [4]byte{0x1f, 0x90})); err != nil {
		t.Fatal(err)
	}
	wantLines(t, dumped(t, id, 0), kills, other, `{"end":{"entries":2}}`)
	wantLines(t, dumped(t, id, 1), kills, `{"end":{"entries":1,"truncated":true}}`)
}

// Without any types, the whole section is one value. The tests of the real daemon cover types from a program.
func TestDumpSectionWithoutTypes(t *testing.T) {
	m, id := made(t, &ebpf.MapSpec{Name: ".bss", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err := m.Put(uint32(0), []byte{1, 0, 0, 2}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, dumped(t, id, 0), `{"entry":{"key":"0x00000000","value":"0x01000002"}}`, `{"end":{"entries":1}}`)
}
