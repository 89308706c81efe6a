// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// callTimeout ends a call of the daemon that hangs.
const callTimeout = time.Minute

// rare are system calls that hardly any process makes, so that programs attached
// there don't slow what is measured. The kernel takes 64 programs at each.
var rare = []string{"acct", "quotactl", "swapoff", "swapon"}

// RareTracepoint is where the i-th of some programs is attached, up to 256.
func RareTracepoint(i int) string { return "syscalls/sys_enter_" + rare[i%len(rare)] }

// Times is what the daemon's own calls took in all, made one after another by a
// client that does nothing else.
type Times struct {
	Load, Attach, Unload time.Duration
}

// TimeCalls has the daemon load and attach n programs, unloads them, and returns
// the times.
func TimeCalls(ctx context.Context, daemon gobpfman.BpfmanClient, n int, image, function string) (times Times, err error) {
	// The connection is made, and the daemon awake, before anything is timed.
	only := true
	if _, err := daemon.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &only}); err != nil {
		return times, fmt.Errorf("list programs: %w", err)
	}
	var ids []uint32
	defer func() {
		for _, id := range ids {
			took, failed := timed(ctx, func(ctx context.Context) error {
				_, err := daemon.Unload(ctx, &gobpfman.UnloadRequest{Id: id})
				return err
			})
			times.Unload += took
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("unload program %d: %w", id, failed))
			}
		}
	}()
	for i := range n {
		took, err := timed(ctx, func(ctx context.Context) error {
			loaded, err := daemon.Load(ctx, loadRequest(i, image, function))
			for _, p := range loaded.GetPrograms() {
				ids = append(ids, p.GetKernelInfo().GetId())
			}
			return err
		})
		times.Load += took
		if err != nil {
			return times, fmt.Errorf("load %s from %s: %w", function, image, err)
		}
		took, err = timed(ctx, func(ctx context.Context) error {
			_, err := daemon.Attach(ctx, &gobpfman.AttachRequest{Id: ids[i], Attach: &gobpfman.AttachInfo{
				Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: RareTracepoint(i)}},
			}})
			return err
		})
		times.Attach += took
		if err != nil {
			return times, fmt.Errorf("attach to %s: %w", RareTracepoint(i), err)
		}
	}
	return times, nil
}

// ifNotPresent is the wire's number for that pull policy.
const ifNotPresent = 1

// loadRequest is the agent's request but for the keys of the metadata, by which
// the agent would take the program for its own.
func loadRequest(i int, image, function string) *gobpfman.LoadRequest {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	return &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_Image{
			Image: &gobpfman.BytecodeImage{Url: image, ImagePullPolicy: ifNotPresent},
		}},
		Uuid: &uid,
		Metadata: map[string]string{
			"bench/uuid": uid, "bench/ProgramName": fmt.Sprintf("bench-%02d", i), "bench/kind": "TracepointProgram", "bench/load": "0123456789abcdef",
		},
		Info: []*gobpfman.LoadInfo{{Name: function, ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}},
	}
}

func timed(ctx context.Context, call func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	return time.Since(start), err
}

// Memory is the resident memory, in bytes, of the processes of each executable.
func Memory(executables ...string) (map[string]int, error) {
	resident := map[string]int{}
	for _, name := range executables {
		pids, err := Processes(name)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			memory, err := MemoryOf(pid)
			if err != nil {
				return nil, err
			}
			resident[name] += memory.Resident
		}
	}
	return resident, nil
}
