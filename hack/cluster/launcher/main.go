// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command launcher starts the bpfman daemon on a machine whose hard
// RLIMIT_MEMLOCK can't be raised: launcher -- bpfman-rpc --timeout=0
//
// The daemon sets that limit to infinity before each call and gives up where
// this is refused, though kernels since 5.11 don't charge BPF memory to it.
// Sandboxed machines without CAP_SYS_RESOURCE refuse it. Only there, the
// launcher has the kernel answer the attempt with success, by a seccomp filter
// that the daemon inherits; elsewhere it is a plain exec. It belongs to the
// one-node test cluster and to native tests: no published image or manifest
// may carry it.
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

// launch replaces this process by the command.
func launch(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("finding the command %q: %w", args[0], err)
	}
	// A filter belongs to the thread that set it, and so does the exec.
	runtime.LockOSThread()
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) != nil {
		if err := pretendMemlock(); err != nil {
			return fmt.Errorf("setting the seccomp filter for RLIMIT_MEMLOCK: %w", err)
		}
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("executing %q: %w", path, err)
	}
	return nil
}
