// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/mapcontent"
	"github.com/bpfman/bpfman-operator/inspector/ringbuffer"
	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// eventLength is the length of a sender's events: a number and a name.
const eventLength = 16

// sender is a program that sends what it is given to a ring buffer.
type sender struct {
	buffer  *ebpf.Map
	program *ebpf.Program
	id      uint32
}

// sends returns a sender. One that discards its events only reserves memory for them. others are the lengths of other
// structs in its types.
func sends(t *testing.T, discards bool, others ...uint32) sender {
	t.Helper()
	needsKernel(t)
	buffer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "tail_test", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	if err != nil {
		prerequisite.Missing(t, "make a ring buffer: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { buffer.Close() })
	instructions := asm.Instructions{
		// R1 is the packet.
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R2, 0), senderType(others)),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -eventLength),
		asm.Mov.Imm(asm.R4, eventLength),
		asm.FnSkbLoadBytes.Call(),
		asm.LoadMapPtr(asm.R1, buffer.FD()),
	}
	if discards {
		instructions = append(instructions,
			asm.Mov.Imm(asm.R2, eventLength),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnRingbufReserve.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRingbufDiscard.Call(),
			asm.Mov.Imm(asm.R0, 0),
		)
	} else {
		instructions = append(instructions,
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -eventLength),
			asm.Mov.Imm(asm.R3, eventLength),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnRingbufOutput.Call(),
		)
	}
	instructions = append(instructions, asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "tail_test", Type: ebpf.SocketFilter, License: "GPL", Instructions: instructions})
	if err != nil {
		prerequisite.Missing(t, "load a program: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { program.Close() })
	info, err := buffer.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return sender{buffer, program, uint32(id)}
}

// senderType returns the type of the sender's function, whose arguments are structs: one of its events, and others.
func senderType(others []uint32) *btf.Func {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Char}
	types := []btf.Type{&btf.Struct{Name: "signal", Size: eventLength, Members: []btf.Member{
		{Name: "number", Type: u32},
		{Name: "name", Type: &btf.Array{Index: u32, Type: char, Nelems: eventLength - 4}, Offset: 32},
	}}}
	for _, size := range others {
		// A struct without a name has the one of its typedef.
		types = append(types, &btf.Typedef{Name: "other_t", Type: &btf.Struct{Size: size, Members: []btf.Member{
			{Name: "bytes", Type: &btf.Array{Index: u32, Type: char, Nelems: size}},
		}}})
	}
	proto := &btf.FuncProto{Return: u32}
	for _, t := range types {
		proto.Params = append(proto.Params, btf.FuncParam{Name: "argument", Type: &btf.Pointer{Target: t}})
	}
	return &btf.Func{Name: "send", Linkage: btf.StaticFunc, Type: proto}
}

// send has the program send an event.
func (s sender) send(t *testing.T, number uint32, name string) {
	t.Helper()
	packet := binary.NativeEndian.AppendUint32(make([]byte, 14), number) // after an Ethernet header
	packet = append(packet, name...)
	packet = append(packet, make([]byte, 14+64-len(packet))...)
	if _, _, err := s.program.Test(packet); err != nil {
		t.Error(err) // not only the test's goroutine calls it
	}
}

// tailed runs Tail, and returns after it has begun.
func (s sender) tailed(t *testing.T, o TailOptions) (<-chan live.TailLine, func() error) {
	t.Helper()
	if o.Path == "" {
		o.Map = s.id
	}
	lines, hangUp := asked[live.TailLine](t, func(ctx context.Context, in io.Reader, out io.Writer) error { return Tail(ctx, o, in, out) })
	first := next(t, lines, func(live.TailLine) bool { return true })
	if first.Map == nil || first.Map.ID != s.id || first.Map.Name != "tail_test" || first.Map.Type != "ringbuf" || first.Map.MaxEntries != uint32(os.Getpagesize()) {
		t.Fatalf("begins with %+v", first)
	}
	return lines, hangUp
}

// decoded reads an event's value.
func decoded(t *testing.T, value json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(value, into); err != nil {
		t.Fatal(err)
	}
}

func anyEvent(line live.TailLine) bool { return line.Event != nil }

func TestTail(t *testing.T) {
	for name, c := range map[string]struct {
		options   TailOptions
		others    []uint32
		typ, want string
		fits      string
	}{
		"the only struct of the length": {others: []uint32{8, 24}, typ: "signal", want: `{"number":9,"name":"kill"}`},
		"several structs":               {others: []uint32{16}, want: hex(9, "kill"), fits: "other_t signal"},
		"a struct by its name":          {options: TailOptions{Type: "signal"}, others: []uint32{16}, typ: "signal", want: `{"number":9,"name":"kill"}`},
		"a struct by its typedef":       {options: TailOptions{Type: "other_t"}, others: []uint32{4}, typ: "other_t", want: `{"bytes":"\t"}`},
		"a struct that is too long":     {options: TailOptions{Type: "other_t"}, others: []uint32{20}, want: hex(9, "kill")},
	} {
		t.Run(name, func(t *testing.T) {
			s := sends(t, false, c.others...)
			s.send(t, 1, "before")
			began := time.Now()
			lines, hangUp := s.tailed(t, c.options)
			s.send(t, 9, "kill")
			got := next(t, lines, anyEvent).Event
			if got.Type != c.typ || string(got.Value) != c.want || got.Length != eventLength || strings.Join(got.Fits, " ") != c.fits {
				t.Errorf("got %+v with %s", got, got.Value)
			}
			if got.Time.Before(began) || got.Time.After(time.Now()) {
				t.Errorf("at %v", got.Time)
			}
			if err := hangUp(); err != nil {
				t.Error(err)
			}
		})
	}
}

// hex is an event in JSON without a type.
func hex(number uint32, name string) string {
	event := append(binary.NativeEndian.AppendUint32(nil, number), name...)
	event = append(event, make([]byte, eventLength-len(event))...)
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, b := range event {
		text.WriteByte(digits[b>>4])
		text.WriteByte(digits[b&15])
	}
	return `"0x` + text.String() + `"`
}

// The application still gets every event, before, while, and after somebody tails its buffer.
func TestTailTakesNothing(t *testing.T) {
	s := sends(t, false)
	reader, err := ringbuf.NewReader(s.buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s.send(t, 1, "a")
	lines, hangUp := s.tailed(t, TailOptions{})
	s.send(t, 2, "b")
	next(t, lines, anyEvent)
	if err := hangUp(); err != nil {
		t.Error(err)
	}
	s.send(t, 3, "c")
	for want := range uint32(3) {
		reader.SetDeadline(time.Now().Add(20 * time.Second))
		record, err := reader.Read()
		if err != nil || binary.NativeEndian.Uint32(record.RawSample) != want+1 {
			t.Fatalf("event %d: %v, %v", want+1, record, err)
		}
	}
}

// Over many rounds of the buffer, nothing is missed as long as it isn't overwritten, and events that the program discards
// aren't shown.
func TestTailAround(t *testing.T) {
	s := sends(t, false)
	reader, err := ringbuf.NewReader(s.buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	lines, hangUp := s.tailed(t, TailOptions{})
	rounds := 3 * os.Getpagesize() / (eventLength + 8)
	for n := range uint32(rounds) {
		s.send(t, n, "x")
		if _, err := reader.Read(); err != nil {
			t.Fatal(err)
		}
		if n%16 != 15 {
			continue // Tail reads some at a time
		}
		for want := n - 15; want <= n; want++ {
			got := next(t, lines, func(live.TailLine) bool { return true })
			var event struct{ Number uint32 }
			if got.Event == nil {
				t.Fatalf("got %+v, want event %d", got, want)
			}
			if decoded(t, got.Event.Value, &event); event.Number != want {
				t.Fatalf("got %s, want event %d", got.Event.Value, want)
			}
		}
	}
	if err := hangUp(); err != nil {
		t.Error(err)
	}
}

func TestTailWithoutDiscarded(t *testing.T) {
	s := sends(t, true)
	events, err := mapcontent.OpenEvents(s.id, mapcontent.EventOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	s.send(t, 1, "discarded")
	if unread := events.Unread(); unread.Bytes != eventLength+8 {
		t.Errorf("%+v", unread) // the kernel has the record
	}
	if err := events.Poll(func(line live.TailLine) error { t.Errorf("got %+v", line); return nil }); err != nil {
		t.Error(err)
	}
}

// Overwritten events are counted, and then the application's next ones follow.
func TestTailOverwritten(t *testing.T) {
	s := sends(t, false)
	reader, err := ringbuf.NewReader(s.buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	events, err := mapcontent.OpenEvents(s.id, mapcontent.EventOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	all := uint32(2 * os.Getpagesize() / (eventLength + 8))
	for n := range all {
		s.send(t, n, "x")
		if n == all-1 {
			break // the application hasn't read the last one
		}
		if _, err := reader.Read(); err != nil {
			t.Fatal(err)
		}
	}
	var got []live.TailLine
	if err := events.Poll(func(line live.TailLine) error { got = append(got, line); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Overwritten != uint64(all-1)*(eventLength+8) || got[1].Event == nil {
		t.Fatalf("got %+v", got)
	}
	var event struct{ Number uint32 }
	if decoded(t, got[1].Event.Value, &event); event.Number != all-1 {
		t.Errorf("got %s", got[1].Event.Value)
	}
}

// While the buffer is written and read as fast as possible, each event is either shown as it was sent, or counted as overwritten.
func TestTailWhileWritten(t *testing.T) {
	s := sends(t, false)
	reader, err := ringbuf.NewReader(s.buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	events, err := mapcontent.OpenEvents(s.id, mapcontent.EventOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	const all = 20_000
	name := func(n uint32) string { return strings.Repeat(string(rune('a'+n%26)), eventLength-4) }
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for n := range uint32(all) {
			s.send(t, n, name(n))
			if _, err := reader.Read(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var shown, overwritten, following uint64
	poll := func() {
		if err := events.Poll(func(line live.TailLine) error {
			overwritten += line.Overwritten
			following += line.Overwritten / (eventLength + 8)
			if line.Event == nil {
				return nil
			}
			var event struct {
				Number uint32
				Name   string
			}
			decoded(t, line.Event.Value, &event)
			if uint64(event.Number) != following || event.Name != name(event.Number) {
				t.Fatalf("got %s, want event %d", line.Event.Value, following)
			}
			shown++
			following++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for ended := false; !ended; {
		select {
		case <-sent:
			ended = true
		default:
		}
		poll()
	}
	poll() // continue if the previous one was overtaken
	if shown*(eventLength+8)+overwritten != all*(eventLength+8) {
		t.Errorf("%d events were shown, and %d bytes overwritten, of %d events", shown, overwritten, all)
	}
}

// Without an application, the buffer is full at some time. What is in it can be shown.
func TestTailNeglected(t *testing.T) {
	s := sends(t, false)
	events := (os.Getpagesize() - 1) / (eventLength + 8)
	for n := range uint32(2 * events) {
		s.send(t, n, "x")
	}
	for name, unread := range map[string]bool{"from now on": false, "the unread events": true} {
		t.Run(name, func(t *testing.T) {
			lines, hangUp := s.tailed(t, TailOptions{Unread: unread})
			shown := 0
			got := next(t, lines, func(line live.TailLine) bool {
				if line.Event != nil {
					shown++
				}
				return line.Neglected != nil
			})
			want := 0
			if unread {
				want = events
			}
			if shown != want || got.Neglected.Bytes != uint64(events*(eventLength+8)) {
				t.Errorf("%d events of %d, and then %+v", shown, want, got.Neglected)
			}
			if err := hangUp(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNeglect(t *testing.T) {
	t.Parallel()
	var n neglect
	start := time.Now()
	for i, c := range []struct {
		at     time.Duration
		unread ringbuffer.Unread
		want   bool
	}{
		{0, ringbuffer.Unread{Bytes: 64, Full: true}, false},
		{neglectedAfter - 1, ringbuffer.Unread{Bytes: 64, Full: true}, false},
		{neglectedAfter, ringbuffer.Unread{Bytes: 64, Full: true}, true},
		{2 * neglectedAfter, ringbuffer.Unread{Bytes: 64, Full: true}, false}, // it was said
		{3 * neglectedAfter, ringbuffer.Unread{Bytes: 48, Position: 16}, false},
		{4 * neglectedAfter, ringbuffer.Unread{Bytes: 64, Position: 16, Full: true}, false},
		{5 * neglectedAfter, ringbuffer.Unread{Bytes: 64, Position: 32, Full: true}, false}, // somebody reads, slowly
		{6 * neglectedAfter, ringbuffer.Unread{Bytes: 64, Position: 32, Full: true}, true},
	} {
		if got := n.began(c.unread, start.Add(c.at)); got != c.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
}

// A command ends when the program is reloaded, after it has read the last events.
func TestTailReplaced(t *testing.T) {
	s := sends(t, false)
	dir := filepath.Join(t.TempDir(), "fs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		prerequisite.Missing(t, "mount a bpffs: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	pin := filepath.Join(dir, "events")
	if err := s.buffer.Pin(pin); err != nil {
		t.Fatal(err)
	}
	lines, hangUp := s.tailed(t, TailOptions{Path: pin})
	s.send(t, 1, "last")
	if err := s.buffer.Unpin(); err != nil {
		t.Fatal(err)
	}
	if last := next(t, lines, func(live.TailLine) bool { return true }); last.Event == nil {
		t.Errorf("got %+v", last)
	}
	if line, more := <-lines; more {
		t.Errorf("then %+v", line)
	}
	if err := hangUp(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ended with %v", err)
	}
}

// The refusal to take events from an application names the application.
func TestTailNamesReaders(t *testing.T) {
	needsKernel(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerfEventArray})
	if err != nil {
		prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
	}
	defer m.Close()
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "map")
	defer file.Close()
	reader := exec.CommandContext(t.Context(), "cat")
	reader.ExtraFiles = []*os.File{file}
	hold, err := reader.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		hold.Close()
		if err := reader.Wait(); err != nil {
			t.Error(err)
		}
	}()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	err = Tail(t.Context(), TailOptions{Map: uint32(id), HostProc: "/proc"}, strings.NewReader(""), io.Discard)
	want := fmt.Sprintf("reading it would take its events from cat[%d]; have the program", reader.Process.Pid)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTailRefuses(t *testing.T) {
	s := sends(t, false)
	for name, c := range map[string]struct {
		spec *ebpf.MapSpec
		typ  string
		want string
	}{
		"perf event array":      {spec: &ebpf.MapSpec{Type: ebpf.PerfEventArray}, want: "a map of type perf_event_array can't be tailed: reading it would take its events from the application; have the program send them to a ring buffer"},
		"user ring buffer":      {spec: &ebpf.MapSpec{Type: ebpf.UserRingbuf, MaxEntries: uint32(os.Getpagesize())}, want: "a map of type user_ringbuf can't be tailed: an application sends its events"},
		"array":                 {spec: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}, want: "a map of type array can't be tailed: it has no events; to show its content, use kubectl bpfman dump"},
		"no such type":          {typ: "signals", want: `find type "signals": no program that uses the map has such a struct in its types (BTF); did you mean signal?`},
		"no types":              {spec: &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())}, typ: "signal", want: `find type "signal": no program that uses the map has structs in its types (BTF)`},
		"a type without a size": {typ: "send", want: `find type "send": no program that uses the map has such a struct`},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.id
			if c.spec != nil {
				m, err := ebpf.NewMap(c.spec)
				if err != nil {
					prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
				}
				defer m.Close()
				info, err := m.Info()
				if err != nil {
					t.Fatal(err)
				}
				of, _ := info.ID()
				id = uint32(of)
			}
			err := Tail(t.Context(), TailOptions{Map: id, Type: c.typ, HostProc: "/proc"}, strings.NewReader(""), io.Discard)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if err := Tail(t.Context(), TailOptions{Map: 1<<32 - 1}, strings.NewReader(""), io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a map that isn't there: %v", err)
	}
}
