// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapentries

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

func newMap(t *testing.T, spec ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	prerequisite.NeedsRoot(t, "creating a map needs CAP_BPF")
	m, err := ebpf.NewMap(&spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

var kinds = []ebpf.MapSpec{
	{Type: ebpf.Hash, KeySize: 4, ValueSize: 8},
	{Type: ebpf.Hash, KeySize: 5, ValueSize: 300},
	{Type: ebpf.LRUHash, KeySize: 16, ValueSize: 1},
	{Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 12},
	{Type: ebpf.LRUCPUHash, KeySize: 4, ValueSize: 8},
	{Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 8, Flags: 1},
	{Type: ebpf.Array, KeySize: 4, ValueSize: 8},
	{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8},
}

// put adds an entry, whose value says its number on each CPU.
func put(m *ebpf.Map, number uint32) error {
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	if m.Type() == ebpf.LPMTrie {
		binary.NativeEndian.PutUint32(key, 32)
		binary.NativeEndian.PutUint32(key[4:], number)
	} else {
		binary.NativeEndian.PutUint32(key, number)
	}
	value[0] = byte(number)
	if !IsPerCPU(m.Type()) {
		return m.Put(key, value)
	}
	values := make([][]byte, ebpf.MustPossibleCPU())
	for cpu := range values {
		values[cpu] = slices.Clone(value)
		values[cpu][0] += byte(cpu)
	}
	return m.Put(key, values)
}

// check reads all entries, and returns how many there are.
func check(t *testing.T, m *ebpf.Map, entries iter.Seq2[Entry, error]) int {
	t.Helper()
	seen := map[string]bool{}
	for entry, err := range entries {
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(entry.Key)] {
			t.Fatalf("key %x twice", entry.Key)
		}
		seen[string(entry.Key)] = true
		number := entry.Key[0]
		if m.Type() == ebpf.LPMTrie {
			number = entry.Key[4]
		}
		for cpu, value := range entry.Values {
			if len(value) != int(m.ValueSize()) || value[0] != number+byte(cpu) {
				t.Fatalf("key %x has the value %x on CPU %d", entry.Key, value, cpu)
			}
		}
		if cpus := len(entry.Values); cpus != 1 && cpus != ebpf.MustPossibleCPU() {
			t.Fatalf("%d values", cpus)
		}
	}
	return len(seen)
}

func TestAll(t *testing.T) {
	for _, spec := range kinds {
		for _, count := range []uint32{0, 1, 3000} {
			t.Run(fmt.Sprintf("%d entries of a %v of %d bytes", count, spec.Type, spec.ValueSize), func(t *testing.T) {
				spec.MaxEntries = max(count, 1)
				if spec.Type == ebpf.LRUHash || spec.Type == ebpf.LRUCPUHash {
					spec.MaxEntries *= 4 // so that none is evicted
				}
				m := newMap(t, spec)
				for i := range count {
					if err := put(m, i); err != nil {
						t.Fatal(err)
					}
				}
				want := int(count)
				if spec.Type == ebpf.Array || spec.Type == ebpf.PerCPUArray {
					if want = int(spec.MaxEntries); count == 0 {
						return // it has an entry that put didn't write
					}
				}
				if got := check(t, m, All(m)); got != want {
					t.Errorf("%d entries, not %d", got, want)
				}
			})
		}
	}
}

// TestAllWhileTheMapChanges deletes and adds entries all the time. The others are found, and
// none twice.
func TestAllWhileTheMapChanges(t *testing.T) {
	const stay, changing = 2000, 1000
	for _, spec := range kinds[:6] {
		t.Run(fmt.Sprintf("%v of %d bytes", spec.Type, spec.ValueSize), func(t *testing.T) {
			spec.MaxEntries = 8 * (stay + changing)
			m := newMap(t, spec)
			for i := range uint32(stay) {
				if err := put(m, i); err != nil {
					t.Fatal(err)
				}
			}
			stop := make(chan struct{})
			var changes sync.WaitGroup
			changes.Go(func() {
				key := make([]byte, m.KeySize())
				for i := uint32(0); ; i = (i + 1) % changing {
					select {
					case <-stop:
						return
					default:
					}
					if err := put(m, stay+i); err != nil {
						t.Error(err)
						return
					}
					at := key
					if m.Type() == ebpf.LPMTrie {
						binary.NativeEndian.PutUint32(key, 32)
						at = key[4:]
					}
					binary.NativeEndian.PutUint32(at, stay+(i+changing/2)%changing)
					if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
						t.Error(err)
						return
					}
				}
			})
			for range 20 {
				if count := check(t, m, All(m)); count < stay {
					t.Errorf("%d entries, of which at least %d were there all the time", count, stay)
				}
			}
			close(stop)
			changes.Wait()
		})
	}
}

// TestStop ends the list early, as a limit does.
func TestStop(t *testing.T) {
	for _, spec := range kinds {
		spec.MaxEntries = 10
		m := newMap(t, spec)
		for i := range uint32(10) {
			if err := put(m, i); err != nil {
				t.Fatal(err)
			}
		}
		count := 0
		for _, err := range All(m) {
			if err != nil {
				t.Fatal(err)
			}
			if count++; count == 3 {
				break
			}
		}
		if count != 3 {
			t.Errorf("%v: %d entries", spec.Type, count)
		}
	}
}

// TestKernelWithoutBatches reads a table one by one, and starts again from the first key.
func TestKernelWithoutBatches(t *testing.T) {
	m := newMap(t, ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 100})
	for i := range uint32(100) {
		if err := put(m, i); err != nil {
			t.Fatal(err)
		}
	}
	// The same as on a kernel without batches, with each key twice.
	count := check(t, m, func(yield func(Entry, error) bool) {
		once := distinct(yield)
		oneByOne(m, once)
		oneByOne(m, once)
	})
	if count != 100 {
		t.Errorf("%d entries", count)
	}
}
