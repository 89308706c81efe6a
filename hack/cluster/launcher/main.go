// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command launcher starts the bpfman daemon on a machine whose hard RLIMIT_MEMLOCK can't
// be raised:
//
//	launcher -- bpfman-rpc --timeout=0
//
// The daemon sets that limit to infinity before each call, and fails if it can't,
// although kernels since 5.11 don't count BPF memory towards it. Sandboxed machines
// without CAP_SYS_RESOURCE refuse to raise it. On these machines, the launcher makes the
// kernel report success, with a seccomp filter that the daemon inherits. On other
// machines, it only executes the daemon. The launcher is for the one-node test cluster
// and for native tests. Published images and manifests must not contain it.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: launcher -- command [argument…]")
		os.Exit(2)
	}
	if err := launch(args); err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(1)
	}
}

// launch replaces this process with the command.
func launch(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find the command %q: %w", args[0], err)
	}
	// A seccomp filter belongs to one thread, which must also execute the command.
	runtime.LockOSThread()
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) != nil {
		if err := pretendMemlock(); err != nil {
			return fmt.Errorf("set the seccomp filter for RLIMIT_MEMLOCK: %w", err)
		}
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("execute %q: %w", path, err)
	}
	return nil
}
