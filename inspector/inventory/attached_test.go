// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// Tests run on other threads than the main one, whose namespace is that of the process.
func init() { runtime.LockOSThread() }

// TestHooksStayWhileTheirNamespaceExists ends the process that stands for a namespace, while
// another one is in it.
func TestHooksStayWhileTheirNamespaceExists(t *testing.T) {
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	first, second, program := inNamespace(t)
	i, err := New("/proc")
	if err != nil {
		t.Fatal(err)
	}
	attached := func(scope Scope) bool {
		t.Helper()
		if _, err := i.Update(scope, time.Now()); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(i.facts.Hooks, func(h network.Hook) bool { return h.Program == program })
	}
	if !attached(Scope{All: true}) {
		t.Fatalf("the program isn't among %+v", i.facts.Hooks)
	}
	end(t, first)
	if !attached(Scope{Network: true}) {
		t.Error("the hook is lost with the first process of its namespace")
	}
	end(t, second)
	if attached(Scope{Network: true}) {
		t.Error("the hook stays although its namespace has no process anymore")
	}
	if err := i.Failures()["network"]; err != nil {
		t.Errorf("a namespace that ended is a failure: %v", err)
	}
}

// inNamespace starts two processes in a network namespace of their own, and attaches an XDP
// program there. The process with the lower id comes first.
func inNamespace(t *testing.T) (first, second *os.Process, program uint32) {
	t.Helper()
	type result struct {
		processes []*os.Process
		program   uint32
		err       error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its namespace
		var r result
		defer func() { done <- r }()
		if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err != nil {
			return
		}
		for range 2 {
			sleep := exec.CommandContext(t.Context(), "sleep", "infinity")
			if r.err = sleep.Start(); r.err != nil {
				return
			}
			r.processes = append(r.processes, sleep.Process)
		}
		r.program, r.err = attachXDP(t)
	}()
	r := <-done
	for _, p := range r.processes {
		t.Cleanup(func() { end(t, p) })
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	slices.SortFunc(r.processes, func(a, b *os.Process) int { return a.Pid - b.Pid })
	return r.processes[0], r.processes[1], r.program
}

// attachXDP attaches a program to the loopback interface of the current network namespace.
func attachXDP(t *testing.T) (uint32, error) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	t.Cleanup(func() { program.Close() })
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return 0, fmt.Errorf("find the interface: %w", err)
	}
	attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: loopback.Attrs().Index, Flags: link.XDPGenericMode})
	if err != nil {
		return 0, fmt.Errorf("attach: %w", err)
	}
	t.Cleanup(func() { attached.Close() })
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("describe: %w", err)
	}
	id, _ := info.ID()
	return uint32(id), nil
}

// end kills a process, and waits until it is gone.
func end(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_, _ = p.Wait() // it was waited for before
}

func TestUnseenHooks(t *testing.T) {
	hook := func(namespace uint64) network.Hook {
		return network.Hook{Interface: network.Interface{NetNS: namespace, Index: 2}, Program: 7}
	}
	before := []network.Hook{hook(1), hook(2), hook(3)}
	listed := []network.Namespace{{Inode: 1}, {Inode: 2}}
	for name, c := range map[string]struct {
		found network.Found
		all   bool
		want  []network.Hook
	}{
		"removed":                  {network.Found{}, true, nil},
		"not read":                 {network.Found{Unread: map[uint64]error{2: unix.EMFILE}}, true, before[1:2]},
		"read in part":             {network.Found{Hooks: before[1:2], Unread: map[uint64]error{2: unix.EMFILE}}, true, nil},
		"another process's id":     {network.Found{Unread: map[uint64]error{1: network.ErrGone}}, true, before[:1]},
		"not all namespaces known": {network.Found{}, false, before[2:]},
	} {
		if got := unseen(before, c.found, listed, c.all); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A pod whose namespace can't be read completely changes it in each round. What is kept of it doesn't grow, and those of
// others stay.
func TestUnseenHooksAreBounded(t *testing.T) {
	other := network.Hook{Interface: network.Interface{NetNS: 2, Index: 1}, Type: "xdp", Program: 7}
	facts := []network.Hook{other}
	listed := []network.Namespace{{Inode: 1}, {Inode: 2}}
	unread := map[uint64]error{1: unix.EMFILE, 2: unix.EMFILE}
	for round := range uint32(3) {
		found := network.Found{Unread: unread}
		for n := range uint32(maxUnseen) {
			found.Hooks = append(found.Hooks, network.Hook{Interface: network.Interface{NetNS: 1, Index: 2 + n + round*maxUnseen}, Type: "tcx/ingress", Program: 8})
		}
		facts = append(found.Hooks, unseen(facts, found, listed, true)...)
	}
	if len(facts) != 2*maxUnseen+1 || !slices.Contains(facts, other) {
		t.Errorf("%d hooks are known", len(facts))
	}
	moved := network.Hook{Interface: network.Interface{NetNS: 1, Index: 2}, Type: "tcx/ingress", Program: 8, Position: 1}
	found := network.Found{Hooks: []network.Hook{moved}, Unread: unread}
	moved.Position = 2
	if got := unseen([]network.Hook{moved}, found, listed, true); len(got) > 0 {
		t.Errorf("a hook is kept at its earlier position: %+v", got)
	}
}
