// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"fmt"
	"os"
	"runtime"
)

// MakeDirectory makes a directory on a thread with a name, which is what the kernel takes for the name of the process.
func MakeDirectory(thread, path string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := os.WriteFile("/proc/thread-self/comm", []byte(thread), 0); err != nil {
			done <- fmt.Errorf("name a thread: %w", err)
			return
		}
		done <- os.Mkdir(path, 0o700)
	}()
	return <-done
}
