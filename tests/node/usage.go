// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is a process of the node and what it takes.
type Usage struct {
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Name is the executable's; of one that is many programs, that of the program.
	Name string `json:"name"`
	// Zombie tells that it has ended and nobody has asked how.
	Zombie bool `json:"zombie,omitempty"`
	// Memory is resident, in bytes.
	Memory  int `json:"memory,omitempty"`
	Files   int `json:"files,omitempty"`
	Threads int `json:"threads,omitempty"`
}

// Usages lists the node's processes, without the kernel's own.
func Usages() ([]Usage, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	usages := make([]Usage, 0, len(dirs))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		u, err := usageOf(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		usages = append(usages, u)
	}
	return usages, nil
}

func usageOf(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	u := Usage{PID: pid}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		number, _ := strconv.Atoi(fields[0])
		switch key {
		case "Name":
			u.Name = fields[0]
		case "State":
			u.Zombie = fields[0] == "Z"
		case "PPid":
			u.Parent = number
		case "VmRSS":
			u.Memory = number << 10
		case "Threads":
			u.Threads = number
		}
	}
	if u.Zombie {
		return u, nil
	}
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return Usage{}, fmt.Errorf("list files of process %d: %w", pid, err)
	}
	u.Files = len(files)
	if name := programName(pid); name != "" {
		u.Name = name
	}
	return u, nil
}

// programName is the name of a process's executable, or the name that it was called by
// where the executable is Kubernetes' of many programs; "" where there is none.
func programName(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	target, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return ""
	}
	// What was replaced while it ran has that suffix.
	name := strings.TrimSuffix(filepath.Base(target), " (deleted)")
	if name != manyPrograms {
		return name
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return ""
	}
	called, _, _ := strings.Cut(string(line), "\x00")
	return filepath.Base(called)
}

// manyPrograms is the executable of hack/kubernetes, which is each of Kubernetes' programs by
// the name that it is called by.
const manyPrograms = "kubernetes"

// errNotRunning is that no process runs a program.
var errNotRunning = errors.New("no process runs the program")

// Signal sends a signal to the processes of a program.
func Signal(program string, signal unix.Signal) error {
	pids, err := Processes(program)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return fmt.Errorf("%w: %s", errNotRunning, program)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("send %v to %s, process %d: %w", signal, program, pid, err)
		}
	}
	return nil
}

// Pulse stops the processes of a program and lets them go on, in turn, until the context
// ends: it answers, but slowly.
func Pulse(ctx context.Context, program string, stopped, running time.Duration) error {
	for {
		for _, phase := range []struct {
			signal unix.Signal
			lasts  time.Duration
		}{{unix.SIGSTOP, stopped}, {unix.SIGCONT, running}} {
			if err := Signal(program, phase.signal); err != nil && !errors.Is(err, errNotRunning) {
				return err
			}
			select {
			case <-ctx.Done():
				if err := Signal(program, unix.SIGCONT); err != nil && !errors.Is(err, errNotRunning) {
					return err
				}
				return nil
			case <-time.After(phase.lasts):
			}
		}
	}
}
