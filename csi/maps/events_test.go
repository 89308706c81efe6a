// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/perf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

// childEvents creates a reader of the buffer pinned at args[0], like an application that
// opens the map for reading, or for reading and writing, depending on args[1].
func childEvents(args []string) error {
	m, err := ebpf.LoadPinnedMap(args[0], &ebpf.LoadPinOptions{ReadOnly: args[1] == "ro"})
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Type() == ebpf.PerfEventArray {
		reader, err := perf.NewReader(m, os.Getpagesize())
		if err != nil {
			return err
		}
		return reader.Close()
	}
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return err
	}
	return reader.Close()
}

// withBuffer returns a node whose program has a buffer for events.
func withBuffer(t *testing.T, kind ebpf.MapType) (node, *ebpf.Map) {
	t.Helper()
	n := newNode(t)
	spec := &ebpf.MapSpec{Type: kind}
	if kind == ebpf.RingBuf {
		spec.MaxEntries = uint32(os.Getpagesize())
	}
	buffer, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buffer.Close() })
	path := filepath.Join(filepath.Dir(n.maps[0].Path), "events")
	clone, err := buffer.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Close()
	if err := clone.Pin(path); err != nil {
		t.Fatal(err)
	}
	n.maps = pinned(t, filepath.Dir(path), "events")
	return n, buffer
}

// TestEventReaders reads events in applications without capabilities. docs/volumes.md
// documents what they need, and quotes these errors.
func TestEventReaders(t *testing.T) {
	group := uint32(2000)
	for name, test := range map[string]struct {
		kind     ebpf.MapType
		readOnly bool
		opened   string
		fails    string
	}{
		"ring buffer":                     {ebpf.RingBuf, false, "rw", ""},
		"ring buffer, opened for reading": {ebpf.RingBuf, false, "ro", "mmap consumer page: permission denied"},
		"ring buffer, read-only volume":   {ebpf.RingBuf, true, "ro", "mmap consumer page: permission denied"},
		"perf event array":                {ebpf.PerfEventArray, false, "rw", "can't create perf event: permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := withBuffer(t, test.kind)
			n.publish(t, n.maps, Access{Group: &group, ReadOnly: test.readOnly})
			user := &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{group}}
			err := sandbox.Run(t, "events", user, sandbox.Fault{}, filepath.Join(n.target, "events"), test.opened)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("got %v, want %q", err, test.fails)
			}
		})
	}
}

// TestRingBufferIsShared checks that an event that one reader takes doesn't reach another
// one.
func TestRingBufferIsShared(t *testing.T) {
	n, buffer := withBuffer(t, ebpf.RingBuf)
	n.publish(t, n.maps, Access{})
	emit(t, buffer, 3)
	first, second := openRing(t, n), openRing(t, n)
	for i := range 3 {
		if _, err := first.Read(); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if record, err := second.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the second reader gets %v, %v", record, err)
	}
	emit(t, buffer, 1)
	second.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := second.Read(); err != nil {
		t.Errorf("the second reader, asking first: %v", err)
	}
}

// openRing opens the volume's buffer, to read existing events.
func openRing(t *testing.T, n node) *ringbuf.Reader {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.target, "events"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	reader.SetDeadline(time.Now().Add(time.Millisecond))
	return reader
}

// emit writes events to the buffer from a program.
func emit(t *testing.T, buffer *ebpf.Map, events int) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, 7),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, buffer.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if _, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: uint32(events)}); err != nil {
		t.Fatal(err)
	}
}
