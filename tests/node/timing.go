// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// callTimeout bounds a call of the daemon.
const callTimeout = time.Minute

// rare are system calls that processes rarely make, so that programs there don't affect
// the measurement. The kernel accepts 64 programs at each.
var rare = []string{"acct", "quotactl", "swapoff", "swapon"}

// RareTracepoint returns the tracepoint for the i-th program, for up to 256 programs.
func RareTracepoint(i int) string { return "syscalls/sys_enter_" + rare[i%len(rare)] }

// Times are the total times of the daemon's calls, made one after another by a client
// that does nothing else.
type Times struct {
	Load, Attach, Unload time.Duration
}

// TimeCalls makes the daemon load, attach, and unload n programs of an image, or of a file
// with an absolute path, and returns the times.
func TimeCalls(ctx context.Context, daemon gobpfman.BpfmanClient, n int, bytecode, function string) (times Times, err error) {
	// Connect before measuring.
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
			loaded, err := daemon.Load(ctx, loadRequest(i, bytecode, function))
			for _, p := range loaded.GetPrograms() {
				ids = append(ids, p.GetKernelInfo().GetId())
			}
			return err
		})
		times.Load += took
		if err != nil {
			return times, fmt.Errorf("load %s from %s: %w", function, bytecode, err)
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

// ifNotPresent is the number of that pull policy in the API.
const ifNotPresent = 1

// loadRequest returns the same request as the agent's, except for the keys of the
// metadata. With these, the agent would consider the program its own.
func loadRequest(i int, bytecode, function string) *gobpfman.LoadRequest {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	return &gobpfman.LoadRequest{
		Bytecode: locationOf(bytecode),
		Uuid:     &uid,
		Metadata: map[string]string{
			"bench/uuid": uid, "bench/ProgramName": fmt.Sprintf("bench-%02d", i), "bench/kind": "TracepointProgram", "bench/load": "0123456789abcdef",
		},
		Info: []*gobpfman.LoadInfo{{Name: function, ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}},
	}
}

func locationOf(bytecode string) *gobpfman.BytecodeLocation {
	if filepath.IsAbs(bytecode) {
		return &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: bytecode}}
	}
	return &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_Image{
		Image: &gobpfman.BytecodeImage{Url: bytecode, ImagePullPolicy: ifNotPresent},
	}}
}

func timed(ctx context.Context, call func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	return time.Since(start), err
}

// Memory returns the resident memory, in bytes, of the processes of each executable.
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
