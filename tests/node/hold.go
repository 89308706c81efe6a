// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Hold loads programs like software that doesn't know bpfman, attaches them, and holds them until EndHold is
// called with the same name, or the context ends. what is tcx or xdp, with an interface, or tracepoint, with a
// tracepoint of syscalls. All programs have the name held_NAME, and do nothing.
func Hold(ctx context.Context, name, what, where string, many int) (err error) {
	control, err := listenForEnd(ctx, "hold-"+name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	for range many {
		held, err := attach(name, what, where)
		if err != nil {
			return fmt.Errorf("attach a %s program to %s: %w", what, where, err)
		}
		defer func() { _ = held.Close() }()
	}
	select {
	case <-control.called:
	case <-ctx.Done():
	}
	return nil
}

// EndHold ends a Hold.
func EndHold(ctx context.Context, name string) error { return end(ctx, "hold-"+name) }

// attach attaches a program. Its link keeps it attached.
func attach(name, what, where string) (io.Closer, error) {
	types := map[string]ebpf.ProgramType{"tcx": ebpf.SchedCLS, "xdp": ebpf.XDP, "tracepoint": ebpf.TracePoint}
	const tcxNext, xdpPass = -1, 2
	verdict := map[string]int32{"tcx": tcxNext, "xdp": xdpPass}[what]
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "held_" + name, Type: types[what], License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load it: %w", err)
	}
	defer func() { _ = program.Close() }()
	if what == "tracepoint" {
		if err := mountTracefs(); err != nil {
			return nil, err
		}
		return link.Tracepoint("syscalls", where, program, nil)
	}
	at, err := net.InterfaceByName(where)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", where, err)
	}
	if what == "xdp" {
		return link.AttachXDP(link.XDPOptions{Interface: at.Index, Program: program})
	}
	return link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
}

// mountTracefs mounts tracefs in the pod if necessary.
func mountTracefs() error {
	const where = "/sys/kernel/tracing"
	var there unix.Statfs_t
	if err := unix.Statfs(where, &there); err == nil && there.Type == unix.TRACEFS_MAGIC {
		return nil
	}
	if err := unix.Mount("tracefs", where, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount tracefs on %s: %w", where, err)
	}
	return nil
}
