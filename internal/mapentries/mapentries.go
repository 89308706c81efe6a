// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package mapentries lists the entries of maps that change in the meantime, each key once.
//
// The kernel's BPF_MAP_GET_NEXT_KEY starts again from the first key if the previous one was
// deleted, so a list with it repeats keys of hash tables. BPF_MAP_LOOKUP_BATCH returns them
// bucket by bucket instead.
package mapentries

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Entry is an entry of a map.
type Entry struct {
	Key []byte
	// Values has one value, or, if the map is per CPU, one for each possible CPU.
	Values [][]byte
}

// IsPerCPU reports whether a map of this type has a value for each CPU.
func IsPerCPU(t ebpf.MapType) bool {
	return t == ebpf.PerCPUHash || t == ebpf.PerCPUArray || t == ebpf.LRUCPUHash || t == ebpf.PerCPUCGroupStorage
}

// All yields the entries of a map. It yields no key twice. An entry that is in the map from
// the beginning to the end is yielded, unless the list ends with an error. The error is
// [ebpf.ErrIterationAborted] if the map changes faster than it can be read, which can only
// happen where the kernel has no batches: before Linux 5.6, and for types such as LPM tries.
// All ends after the first error.
func All(m *ebpf.Map) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		switch m.Type() {
		case ebpf.Hash, ebpf.PerCPUHash, ebpf.LRUHash, ebpf.LRUCPUHash:
			if batches(m, yield) {
				return
			}
			oneByOne(m, distinct(yield))
		case ebpf.Array, ebpf.PerCPUArray:
			oneByOne(m, yield) // keys of arrays are never deleted
		default:
			oneByOne(m, distinct(yield))
		}
	}
}

const (
	// batchBytes is the size of a batch, and maxBatchBytes of the largest one.
	batchBytes, maxBatchBytes = 1 << 18, 1 << 24
)

// batches yields the entries of a hash table, and returns false if the kernel has no batches.
func batches(m *ebpf.Map, yield func(Entry, error) bool) bool {
	cpus := 1
	if IsPerCPU(m.Type()) {
		var err error
		if cpus, err = ebpf.PossibleCPU(); err != nil {
			return false
		}
	}
	each := int(m.KeySize()) + cpus*int(m.ValueSize())
	size := min(max(batchBytes/each, 1), int(m.MaxEntries()))
	var cursor ebpf.MapBatchCursor
	keys, values := slicesOf(m, size, cpus)
	for yielded := false; ; {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		switch {
		case err == nil || errors.Is(err, ebpf.ErrKeyNotExist): // the latter at the end
		case errors.Is(err, unix.ENOSPC) && 2*size*each <= maxBatchBytes: // a bucket has more entries
			size *= 2
			keys, values = slicesOf(m, size, cpus)
			continue
		case !yielded:
			return false
		default:
			yield(Entry{}, fmt.Errorf("look up a batch of keys: %w", err))
			return true
		}
		for i := range n {
			entry := Entry{Key: keys.Index(i).Bytes(), Values: make([][]byte, cpus)}
			for cpu := range cpus {
				entry.Values[cpu] = values.Index(i*cpus + cpu).Bytes()
			}
			if !yield(entry, nil) {
				return true
			}
		}
		if err != nil {
			return true
		}
		yielded = true
		keys, values = slicesOf(m, size, cpus) // callers can keep entries
	}
}

// slicesOf returns slices of arrays of bytes for a batch. BatchLookup has no other way to
// describe keys and values whose sizes aren't known at compile time.
func slicesOf(m *ebpf.Map, size, cpus int) (keys, values reflect.Value) {
	octet := reflect.TypeFor[byte]()
	slice := func(of uint32, length int) reflect.Value {
		return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(of), octet)), length, length)
	}
	return slice(m.KeySize(), size), slice(m.ValueSize(), size*cpus)
}

func oneByOne(m *ebpf.Map, yield func(Entry, error) bool) {
	entries := m.Iterate()
	for {
		entry := Entry{Values: make([][]byte, 1)}
		value := any(&entry.Values[0])
		if IsPerCPU(m.Type()) {
			value = &entry.Values
		}
		if !entries.Next(&entry.Key, value) {
			break
		}
		if !yield(entry, nil) {
			return
		}
	}
	if err := entries.Err(); err != nil {
		yield(Entry{}, err)
	}
}

// distinct leaves out keys that were yielded before.
func distinct(yield func(Entry, error) bool) func(Entry, error) bool {
	repeats := Repeats()
	return func(entry Entry, err error) bool {
		if err == nil && repeats(entry.Key) {
			return true
		}
		return yield(entry, err)
	}
}

// Repeats returns a function that reports whether it was called with the same key before. It
// keeps a hash of each key, so that it needs little memory.
func Repeats() func(key []byte) bool {
	seed, seen := maphash.MakeSeed(), map[uint64]struct{}{}
	return func(key []byte) bool {
		hash := maphash.Bytes(seed, key)
		_, repeated := seen[hash]
		seen[hash] = struct{}{}
		return repeated
	}
}
