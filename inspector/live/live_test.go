// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// asked runs a command, and returns its lines and a function that ends it.
func asked[L any](t *testing.T, command func(context.Context, io.Reader, io.Writer) error) (lines <-chan L, hangUp func() error) {
	t.Helper()
	in, speak := io.Pipe()
	hear, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := command(t.Context(), in, out)
		out.Close()
		ended <- err
	}()
	messages := make(chan L)
	go func() {
		defer close(messages)
		for s := bufio.NewScanner(hear); s.Scan(); {
			var line L
			if err := json.Unmarshal(s.Bytes(), &line); err != nil {
				t.Errorf("%q: %v", s.Text(), err)
			}
			select {
			case messages <- line:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return messages, func() error {
		speak.Close()
		go func() {
			for range messages {
			}
		}()
		return <-ended
	}
}

// next waits for a line that satisfies a condition.
func next[L any](t *testing.T, lines <-chan L, wanted func(L) bool) L {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("it ended")
			}
			if wanted(line) {
				return line
			}
		case <-timeout:
			t.Fatal("no such line")
		}
	}
}

func TestWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, speak := io.Pipe()
		ctx, cancel := whileRead(t.Context(), in, time.Second)
		defer cancel()
		for range 3 {
			time.Sleep(900 * time.Millisecond) //nolint:forbidigo // in the bubble, the clock isn't real
			if _, err := speak.Write([]byte("\n")); err != nil || ctx.Err() != nil {
				t.Fatalf("it ended while its reader spoke: %v, %v", err, ctx.Err())
			}
		}
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != time.Second {
			t.Errorf("it ended after %v of silence", took)
		}

		ctx, cancel = whileRead(t.Context(), in, time.Hour)
		defer cancel()
		start = time.Now()
		speak.Close()
		<-ctx.Done()
		if took := time.Since(start); took != 0 {
			t.Errorf("it ended %v after its reader hung up", took)
		}
	})
}

func needsKernel(t *testing.T) {
	t.Helper()
	prerequisite.NeedsRoot(t, "programs of the kernel are for root alone")
}

// getcwd makes the kernel run a program that is attached to the system call getcwd.
func getcwd(t *testing.T) {
	t.Helper()
	if _, err := unix.Getcwd(make([]byte, unix.PathMax)); err != nil {
		t.Fatal(err)
	}
}

// attached returns a program that runs on each system call getcwd.
func attached(t *testing.T, name string, instructions asm.Instructions) *ebpf.Program {
	t.Helper()
	onGetcwd := append(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 8, asm.DWord), // the number of the system call
		asm.JEq.Imm(asm.R6, unix.SYS_GETCWD, "getcwd"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("getcwd"),
	}, instructions...)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.RawTracepoint, License: "GPL", Instructions: onGetcwd})
	if err != nil {
		prerequisite.Missing(t, "load a program: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { program.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: program})
	if err != nil {
		prerequisite.Missing(t, "attach it to a raw tracepoint: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { l.Close() })
	return program
}

func idOf(t *testing.T, program *ebpf.Program) uint32 {
	t.Helper()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return uint32(id)
}

func nothing() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()} }

func TestTop(t *testing.T) {
	needsKernel(t)
	program := attached(t, "top_test", nothing())
	id := idOf(t, program)
	lines, hangUp := asked[live.Usage](t, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return Top(ctx, 50*time.Millisecond, in, out)
	})
	started := next(t, lines, func(live.Usage) bool { return true })
	if started.Elapsed != 0 || started.CPUs < 1 {
		t.Errorf("begins with %+v", started)
	}
	for range 100 {
		getcwd(t)
	}
	var runs uint64
	next(t, lines, func(line live.Usage) bool {
		if line.Elapsed <= 0 {
			t.Errorf("an interval of %v", line.Elapsed)
		}
		for _, p := range line.Programs {
			if p.ID != id {
				continue
			}
			runs += p.Runs
			if p.Name != "top_test" || p.Type != "raw_tracepoint" || p.RunTime <= 0 {
				t.Errorf("got %+v", p)
			}
		}
		return runs >= 100
	})
	if err := hangUp(); err != nil {
		t.Error(err)
	}
}

// A client of the statistics doesn't disable them for others. The last client disables
// them.
func TestTopTwice(t *testing.T) {
	needsKernel(t)
	attached(t, "top_twice", nothing())
	command := func(ctx context.Context, in io.Reader, out io.Writer) error {
		return Top(ctx, 50*time.Millisecond, in, out)
	}
	first, hangUpFirst := asked[live.Usage](t, command)
	next(t, first, func(live.Usage) bool { return true })
	second, hangUpSecond := asked[live.Usage](t, command)
	next(t, second, func(live.Usage) bool { return true })
	if err := hangUpFirst(); err != nil {
		t.Error(err)
	}
	if !askedToCount(t) {
		t.Error("the kernel isn't asked to count")
	}
	next(t, second, func(line live.Usage) bool {
		getcwd(t)
		for _, p := range line.Programs {
			if p.Name == "top_twice" {
				return true
			}
		}
		return false
	})
	if err := hangUpSecond(); err != nil {
		t.Error(err)
	}
	// Other processes on this machine can enable the statistics, so the test only checks
	// that these two don't.
	if asked := askedToCount(t); asked {
		t.Error("the kernel is asked to count still")
	}
}

// askedToCount reports whether this process enables the kernel's statistics.
func askedToCount(t *testing.T) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		target, err := os.Readlink(file)
		return err == nil && strings.HasPrefix(target, "anon_inode:bpf-stats")
	})
}

// say prints the process's id with a format.
func say(format string) asm.Instructions {
	var out asm.Instructions
	text := append([]byte(format), make([]byte, 8-len(format)%8)...)
	for i := 0; i < len(text); i += 8 {
		word := uint64(0)
		for j := 7; j >= 0; j-- {
			word = word<<8 | uint64(text[i+j])
		}
		out = append(out, asm.LoadImm(asm.R1, int64(word), asm.DWord), asm.StoreMem(asm.RFP, int16(i-len(text)), asm.R1, asm.DWord))
	}
	return append(out,
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, int32(-len(text))),
		asm.Mov.Imm(asm.R2, int32(len(format)+1)),
		asm.FnTracePrintk.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
}

func TestTrace(t *testing.T) {
	needsKernel(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("text in registers, as little-endian machines have it")
	}
	wanted := attached(t, "trace_wanted", say("wanted %d"))
	attached(t, "trace_other", say("not wanted %d"))
	id := idOf(t, wanted)
	lines, hangUp := asked[live.Print](t, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return Trace(ctx, []uint32{id}, in, out)
	})
	next(t, lines, func(live.Print) bool { return true })
	getcwd(t)
	got := next(t, lines, func(line live.Print) bool {
		return line.PID == unix.Gettid() || strings.HasSuffix(line.Text, " "+pid())
	})
	if got.Text != "wanted "+pid() || len(got.Programs) != 1 || got.Programs[0].ID != id || got.Elapsed <= 0 || got.Process == "" {
		t.Errorf("got %+v", got)
	}
	if err := hangUp(); err != nil {
		t.Error(err)
	}
}

func pid() string { return strconv.Itoa(os.Getpid()) }

func TestDump(t *testing.T) {
	needsKernel(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "dump_test", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 8})
	if err != nil {
		prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
	}
	defer m.Close()
	if err := m.Put(uint32(7), uint64(1)); err != nil {
		t.Fatal(err)
	}
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	lines, hangUp := asked[live.DumpLine](t, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return Dump(ctx, DumpOptions{Map: uint32(id), Every: 20 * time.Millisecond}, in, out)
	})
	described := next(t, lines, func(l live.DumpLine) bool { return l.Map != nil }).Map
	if described.Name != "dump_test" || described.Type != "hash" || described.MaxEntries != 8 || described.HasBTF {
		t.Errorf("got %+v", described)
	}
	if entry := next(t, lines, func(l live.DumpLine) bool { return l.Entry != nil }).Entry; string(entry.Key) != `"0x07000000"` {
		t.Errorf("got %s: %s", entry.Key, entry.Value)
	}
	if err := m.Put(uint32(8), uint64(2)); err != nil {
		t.Fatal(err)
	}
	next(t, lines, func(l live.DumpLine) bool { return l.End != nil && l.End.Entries == 2 })
	if err := hangUp(); err != nil {
		t.Error(err)
	}

	var out strings.Builder
	if err := Dump(t.Context(), DumpOptions{Map: uint32(id), Limit: 1}, strings.NewReader(""), &out); err != nil || !strings.Contains(out.String(), `"end":{"entries":1,"truncated":true}`) {
		t.Errorf("%v: %s", err, &out)
	}
	if err := Dump(t.Context(), DumpOptions{Map: 1<<32 - 1}, strings.NewReader(""), &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a map that isn't there: %v", err)
	}
}
