// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/globals"
	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/mapentries"
)

// Map is a map in the kernel, open for reading.
type Map struct {
	m          *ebpf.Map
	info       live.Map
	key, value btf.Type // nil without BTF
}

// Open opens a map by the kernel's id. It returns an [os.ErrNotExist] error if the map
// doesn't exist.
func Open(id uint32) (*Map, error) {
	m, err := opened(id)
	if err != nil {
		return nil, err
	}
	return described(m)
}

// OpenPinned opens a map by the path of its pin.
func OpenPinned(path string) (*Map, error) {
	m, err := openedPin(path)
	if err != nil {
		return nil, err
	}
	return described(m)
}

func opened(id uint32) (*ebpf.Map, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("map %d doesn't exist: %w", id, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open map %d: %w", id, err)
	}
	return m, nil
}

func openedPin(path string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open the map pinned at %s: %w", path, err)
	}
	return m, nil
}

func described(m *ebpf.Map) (*Map, error) {
	out, err := describe(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return out, nil
}

// Close closes the map.
func (m *Map) Close() error { return m.m.Close() }

// unreadable are types of maps whose entries can't be read with lookups alone, with the
// reasons.
var unreadable = map[ebpf.MapType]string{
	ebpf.RingBuf:            "it has no entries; to show its new events, use kubectl bpfman tail",
	ebpf.PerfEventArray:     "its events are for its reader",
	ebpf.Queue:              "reading it removes its entries",
	ebpf.Stack:              "reading it removes its entries",
	ebpf.BloomFilter:        "a bloom filter has no entries to list",
	ebpf.StructOpsMap:       "it contains kernel functions",
	ebpf.Arena:              "an arena has no entries",
	ebpf.UserRingbuf:        "its events are for its program",
	ebpf.SockMap:            "it contains sockets",
	ebpf.SockHash:           "it contains sockets",
	ebpf.XSKMap:             "it contains sockets",
	ebpf.SkStorage:          "its entries belong to sockets",
	ebpf.InodeStorage:       "its entries belong to files",
	ebpf.TaskStorage:        "its entries belong to tasks",
	ebpf.CgroupStorage:      "its entries belong to cgroups",
	ebpf.ReusePortSockArray: "it contains sockets",
}

func describe(m *ebpf.Map) (*Map, error) {
	if why, ok := unreadable[m.Type()]; ok {
		return nil, fmt.Errorf("a map of type %s can't be dumped: %s", kernel.MapType(uint32(m.Type())), why)
	}
	info, err := m.Info()
	if err != nil {
		return nil, fmt.Errorf("get information on a map: %w", err)
	}
	out := &Map{m: m, info: message(info)}
	out.key, out.value = types(m, info)
	if out.value == nil && globals.IsSection(info.Name) {
		if out.value, err = sectionType(out.info); err != nil {
			return nil, err
		}
	}
	out.info.HasBTF = out.value != nil
	return out, nil
}

// message describes a map, without its types.
func message(info *ebpf.MapInfo) live.Map {
	id, _ := info.ID()
	return live.Map{
		ID: uint32(id), Name: info.Name, Type: kernel.MapType(uint32(info.Type)),
		KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries, PerCPU: mapentries.IsPerCPU(info.Type),
	}
}

// types returns the types of the key and the value, or nil if the map has no BTF. If the
// BTF can't be read, it also returns nil, and the content is shown as hexadecimal
// digits.
func types(m *ebpf.Map, info *ebpf.MapInfo) (key, value btf.Type) {
	id, ok := info.BTFID()
	if !ok {
		return nil, nil
	}
	handle, err := btf.NewHandleFromID(id)
	if err != nil {
		return nil, nil
	}
	defer handle.Close()
	spec, err := handle.Spec(nil)
	if err != nil {
		return nil, nil
	}
	keyID, valueID, err := kernel.MapTypes(m.FD())
	if err != nil {
		return nil, nil
	}
	typeOf := func(id uint32) btf.Type {
		if t, err := spec.TypeByID(btf.TypeID(id)); id != 0 && err == nil {
			return t
		}
		return nil
	}
	return typeOf(keyID), typeOf(valueID)
}

// Dump calls emit with the map, its entries, and the end. A limit of 0 means no limit.
func (m *Map) Dump(ctx context.Context, limit int, emit func(live.DumpLine) error) error {
	if err := emit(live.DumpLine{Map: &m.info}); err != nil {
		return err
	}
	if section, ok := m.value.(*btf.Datasec); ok {
		return m.dumpSection(section, limit, emit)
	}
	var end live.End
	for found, err := range mapentries.All(m.m) {
		if errors.Is(err, ebpf.ErrIterationAborted) {
			end.Changed = true
			break
		}
		if err != nil {
			return fmt.Errorf("read map %d: %w", m.info.ID, err)
		}
		if limit > 0 && end.Entries == limit {
			end.Truncated = true
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		entry, err := m.entry(found)
		if err != nil {
			return err
		}
		if err := emit(live.DumpLine{Entry: entry}); err != nil {
			return err
		}
		end.Entries++
	}
	return emit(live.DumpLine{End: &end})
}

func (m *Map) entry(of mapentries.Entry) (*live.Entry, error) {
	var out live.Entry
	var errs []error
	marshal := func(v any) json.RawMessage {
		text, err := json.Marshal(v)
		errs = append(errs, err)
		return text
	}
	out.Key = marshal(decode(m.key, of.Key))
	if !m.info.PerCPU {
		out.Value = marshal(decode(m.value, of.Values[0]))
		return &out, errors.Join(errs...)
	}
	var decoded []any
	for _, v := range of.Values {
		decoded = append(decoded, decode(m.value, v))
		out.PerCPU = append(out.PerCPU, marshal(decoded[len(decoded)-1]))
	}
	if m.value != nil { // sums of hexadecimal digits make no sense
		out.Value = marshal(sum(decoded))
	}
	return &out, errors.Join(errs...)
}
