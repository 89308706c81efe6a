// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The agent has uid 0 and no capability. So it can read the interfaces and control groups of a container's process, but not
// which files the container has: it can't notice that the target of a uprobe was replaced by another file.
func TestWhatTheAgentCanReadOfAProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	for name, uid := range map[string]uint32{"root, with capabilities": 0, "a user": 65534} {
		t.Run(name, func(t *testing.T) {
			process := exec.CommandContext(t.Context(), "sleep", "1000")
			process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = process.Process.Kill()
				_ = process.Wait()
			}()
			dir := fmt.Sprintf("/proc/%d/", process.Process.Pid)
			for file, allowed := range map[string]bool{"net/dev": true, "cgroup": true, "root/bin": false, "maps": false, "exe": false} {
				if err := withoutCapabilities(t, func() error { return look(dir + file) }); (err == nil) != allowed || err != nil && !errors.Is(err, os.ErrPermission) {
					t.Errorf("%s: %v, allowed %t", file, err, allowed)
				}
			}
		})
	}
}

// look reads a file, or finds a directory.
func look(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		_, err = os.ReadFile(path)
	}
	return err
}

// withoutCapabilities calls f on a thread without capabilities, which ends after that.
func withoutCapabilities(t *testing.T, f func() error) error {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			result <- fmt.Errorf("drop capabilities: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
