// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/bpfman/bpfman-operator/agent/pins"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestPinnedMapOfAnotherShape updates bytecode. The map in the new bytecode has larger values than the map that is
// pinned by name. The condition reports that. With the annotation, the pin is replaced when no other program uses
// the map.
func TestPinnedMapOfAnotherShape(t *testing.T) {
	n := start(t)
	n.Push("test/pinned:v1", build(t, "pinned"))
	n.Push("test/pinned:v2", build(t, "pinned_wider"))
	pinned := func(name string) *v1alpha1.TcxProgram {
		o := n.program(name, n.image("test/pinned:v1", v1alpha1.PullIfNotPresent))
		o.Spec.BpfFunctionName = "pinned"
		return o
	}
	upgraded, other := pinned("pinned-upgraded"), pinned("pinned-other")
	n.create(upgraded)
	n.create(other)
	old := n.loaded(upgraded)
	n.loaded(other)
	foreign, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	must.Succeed(t, foreign.Pin(n.Path("/sys/fs/bpf/foreign")))

	n.change(upgraded, func() { upgraded.Spec.ByteCode = n.image("test/pinned:v2", v1alpha1.PullIfNotPresent) })
	n.fails(upgraded, v1alpha1.BpfProgCondNotLoaded,
		"the pinned map /sys/fs/bpf/pinned_flows has type Hash, 4-byte keys, and 96-byte values, but the bytecode declares type Hash, 4-byte keys, and 104-byte values",
		"bpfman.io/replace-pinned-maps", fmt.Sprintf("(the previously loaded program %d keeps running)", old))

	replace := map[string]string{v1alpha1.AnnotationReplacePinnedMaps: "true"}
	n.change(upgraded, func() { upgraded.Annotations = replace })
	n.fails(upgraded, v1alpha1.BpfProgCondNotLoaded, "the pin is kept because other programs use the map", "keeps running")

	n.delete(other)
	n.loaded(upgraded)
	n.eventually("the Event", func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := n.client.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.UID == upgraded.UID && e.Reason == "PinsRemoved" && strings.Contains(e.Note, "/sys/fs/bpf/pinned_flows") {
				return nil
			}
		}
		return errors.New("none")
	})
	for pin, size := range map[string]uint32{"pinned_flows": 104, "foreign": 4} {
		m, err := ebpf.LoadPinnedMap(n.Path("/sys/fs/bpf/"+pin), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.ValueSize() != size {
			t.Errorf("%s has values of %d bytes, want %d", pin, m.ValueSize(), size)
		}
		_ = m.Close()
	}
}

// TestPinnedMapIsPutBack lets the agent replace the map of a running program with that of bytecode that the kernel
// rejects. The program keeps running, and the pin leads to its map with its entries, even if the agent restarts
// meanwhile.
func TestPinnedMapIsPutBack(t *testing.T) {
	n := start(t)
	n.Push("test/pinned:v1", build(t, "pinned"))
	n.Push("test/pinned:rejected", build(t, "pinned_rejected"))
	o := n.program("pinned-put-back", n.image("test/pinned:v1", v1alpha1.PullIfNotPresent))
	o.Spec.BpfFunctionName = "pinned"
	o.Annotations = map[string]string{v1alpha1.AnnotationReplacePinnedMaps: "true"}
	n.create(o)
	old := n.loaded(o)
	pin := n.Path("/sys/fs/bpf/pinned_flows")
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, m.Put(uint32(7), bytes.Repeat([]byte{42}, 96)))
	info, err := m.Info()
	_ = m.Close()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := info.ID()
	kept := func() error {
		now, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			return err
		}
		defer now.Close()
		info, err := now.Info()
		if err != nil {
			return err
		}
		var value []byte
		if id, _ := info.ID(); id != before || now.Lookup(uint32(7), &value) != nil || len(value) != 96 || value[0] != 42 {
			return fmt.Errorf("map %d with values of %d bytes, %v; it was map %d", id, now.ValueSize(), value, before)
		}
		left, err := pins.Replaced(filepath.Dir(pin))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("set aside: %q", left)
		}
		return err
	}

	n.change(o, func() { o.Spec.ByteCode = n.image("test/pinned:rejected", v1alpha1.PullIfNotPresent) })
	n.fails(o, v1alpha1.BpfProgCondNotLoaded, "the bytecode can't be loaded with a new map either, so the pinned map stays", fmt.Sprintf("(the previously loaded program %d keeps running)", old))
	if err := kept(); err != nil {
		t.Error(err)
	}

	// The agent was killed after it had set the pin aside, and the loader had created a map that nothing uses.
	must.Succeed(t, os.Rename(pin, filepath.Join(filepath.Dir(pin), "bpfman-replaced-pinned_flows")))
	unused, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 104, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	must.Succeed(t, unused.Pin(pin))
	n.change(o, func() { o.Spec.Priority++ })
	n.eventually("the pin to be back", func(context.Context) error { return kept() })

	n.change(o, func() { o.Spec.ByteCode = n.image("test/pinned:v1", v1alpha1.PullIfNotPresent) })
	if now := n.loaded(o); now != old {
		t.Errorf("program %d, want %d", now, old)
	}
	if err := kept(); err != nil {
		t.Error(err)
	}
}

// TestPinnedMapsFit pins maps of each type for which bytecode can leave out sizes. They fit the bytecode that has
// created them.
func TestPinnedMapsFit(t *testing.T) {
	n := start(t)
	for kind, declared := range map[ebpf.MapType]reader.Map{
		ebpf.PerfEventArray: {KeySize: 4}, ebpf.ProgramArray: {}, ebpf.CGroupArray: {ValueSize: 4}, ebpf.XSKMap: {},
		ebpf.DevMap: {KeySize: 4, ValueSize: 4}, ebpf.DevMapHash: {KeySize: 4, ValueSize: 4}, ebpf.CPUMap: {KeySize: 4, ValueSize: 4},
		ebpf.Hash: {KeySize: 8, ValueSize: 16}, ebpf.RingBuf: {}, ebpf.Queue: {ValueSize: 8}, ebpf.LPMTrie: {KeySize: 8, ValueSize: 1},
	} {
		spec := &ebpf.MapSpec{Type: kind, KeySize: cmp.Or(declared.KeySize, 4), ValueSize: cmp.Or(declared.ValueSize, 4), MaxEntries: 4096}
		switch kind {
		case ebpf.RingBuf:
			spec.KeySize, spec.ValueSize = 0, 0
		case ebpf.DevMap, ebpf.DevMapHash, ebpf.CPUMap:
			spec.ValueSize = 8 // as the daemon of v0.6.0 creates them, regardless of the declared size
		case ebpf.Queue:
			spec.KeySize = 0
		case ebpf.LPMTrie:
			spec.Flags = 1 // BPF_F_NO_PREALLOC
		default:
		}
		m, err := ebpf.NewMap(spec)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		declared.Name, declared.Type, declared.Pinned = "fits_"+strings.ToLower(kind.String()), uint32(kind), true
		if err := errors.Join(m.Pin(n.Path("/sys/fs/bpf/"+declared.Name)), m.Close()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if misfits, err := pins.Misfits(n.Path("/sys/fs/bpf"), []reader.Map{declared}); err != nil || len(misfits) > 0 {
			t.Errorf("%v, %v", misfits, err)
		}
		declared.ValueSize += 4
		anySize := []ebpf.MapType{ebpf.ProgramArray, ebpf.XSKMap, ebpf.PerfEventArray, ebpf.DevMap, ebpf.DevMapHash, ebpf.CPUMap}
		if misfits, err := pins.Misfits(n.Path("/sys/fs/bpf"), []reader.Map{declared}); err != nil || len(misfits) != 1 && !slices.Contains(anySize, kind) {
			t.Errorf("%s with larger values: %v, %v", kind, misfits, err)
		}
	}
}
