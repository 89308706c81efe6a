// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package events

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// sender returns a program that sends the same event to a new ring buffer each time it runs, and the buffer's name.
func sender(t *testing.T, dir, name, pid string) *ebpf.Program {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "events", Type: ebpf.RingBuf, MaxEntries: 4096})
	if err != nil {
		prerequisite.Missing(t, "make a ring buffer: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	const size = 28
	instructions := asm.Instructions{asm.Mov.Imm(asm.R1, 0)}
	for at := int16(-32); at < 0; at += 8 {
		instructions = append(instructions, asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
	}
	instructions = append(instructions,
		asm.StoreImm(asm.RFP, -32, int64(pid[0]), asm.Word),
		asm.StoreImm(asm.RFP, -20, 'x', asm.Byte),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -32),
		asm.Mov.Imm(asm.R3, size), asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: instructions})
	if err != nil {
		prerequisite.Missing(t, "load a program: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func runProgram(t *testing.T, p *ebpf.Program) {
	t.Helper()
	if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
		t.Fatal(err)
	}
}

// TestRead reads events, also those of the buffer that replaces the first one, as in a volume after a reload.
func TestRead(t *testing.T) {
	prerequisite.NeedsRoot(t, "maps of the kernel are for root alone")
	dir := t.TempDir()
	sandbox.MountBPFFS(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, ended := make(chan Event), make(chan error, 1)
	first := sender(t, dir, "events", "a")
	runProgram(t, first)
	go func() { ended <- Read(ctx, filepath.Join(dir, "events"), func(e Event) { got <- e }) }()
	if e := <-got; e != (Event{PID: 'a', Process: "x"}) {
		t.Errorf("got %+v", e)
	}
	second := sender(t, dir, "next", "b")
	if err := unix.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "events")); err != nil {
		t.Fatal(err)
	}
	runProgram(t, first)
	runProgram(t, second)
	for _, want := range []uint32{'a', 'b'} {
		if e := <-got; e.PID != want {
			t.Errorf("got %+v, want the event of %c", e, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A slow client loses events and is told so, while another one gets all of them.
func TestHub(t *testing.T) {
	hub := &Hub{}
	slow := hub.add()
	for i := range backlog + 3 {
		hub.Emit(Event{PID: uint32(i)})
	}
	if lost := hub.takeLost(slow); lost != 3 || len(slow.events) != backlog || hub.takeLost(slow) != 0 {
		t.Errorf("lost %d, waiting %d", lost, len(slow.events))
	}
	hub.remove(slow)

	server := httptest.NewServer(hub)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	hub.mu.Lock()
	for c := range hub.clients {
		c.lost = 7
	}
	hub.mu.Unlock()
	hub.Emit(Event{PID: 1, Target: -2, Signal: 15, Process: "bash"})
	lines := bufio.NewScanner(response.Body)
	for _, want := range []string{`{"lost":7}`, `{"pid":1,"target":-2,"signal":15,"process":"bash"}`} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, want %s", lines.Text(), want)
		}
	}
}

// FuzzParse parses any record: a program can send what it likes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 28)))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, record []byte) {
		if e, err := parse(record); (err == nil) != (len(record) >= 28) {
			t.Errorf("%d bytes: %+v, %v", len(record), e, err)
		}
	})
}

// pipeListener accepts one connection.
type pipeListener struct {
	connections chan net.Conn
	net.Listener
}

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l.connections; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error { return nil }

// A client that doesn't read, and doesn't disconnect, isn't kept.
func TestHubForgetsAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		listener := pipeListener{connections: make(chan net.Conn, 1)}
		listener.connections <- server
		hub := &Hub{}
		go func() { _ = (&http.Server{Handler: hub, ReadHeaderTimeout: time.Second}).Serve(listener) }()
		defer close(listener.connections)
		if _, err := client.Write([]byte("GET /events HTTP/1.1\r\nHost: hub\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		clients := func() int {
			hub.mu.Lock()
			defer hub.mu.Unlock()
			return len(hub.clients)
		}
		if clients() != 1 {
			t.Fatalf("%d clients", clients())
		}
		<-time.After(2 * writeTimeout) // virtual
		synctest.Wait()
		if clients() != 0 {
			t.Error("the hub still has a client that doesn't read")
		}
	})
}
