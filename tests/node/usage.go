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

// Usage describes the resources that a process on the node uses.
type Usage struct {
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Name is the name of the executable. For a multi-call binary, it is the name of the program.
	Name string `json:"name"`
	// Zombie means that it has ended, and its parent hasn't waited for it.
	Zombie bool `json:"zombie,omitempty"`
	// Memory is the resident memory, in bytes.
	Memory  int `json:"memory,omitempty"`
	Files   int `json:"files,omitempty"`
	Threads int `json:"threads,omitempty"`
}

// Usages returns the node's processes, without kernel threads.
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
			continue // it ended in the meantime
		}
		if err != nil {
			return nil, err
		}
		usages = append(usages, u)
	}
	return usages, nil
}

func usageOf(pid int) (Usage, error) {
	status, err := statusOf(pid)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{PID: pid, Zombie: status["State"] == "Z", Name: status["Name"]}
	u.Parent, _ = strconv.Atoi(status["PPid"])
	u.Threads, _ = strconv.Atoi(status["Threads"])
	kib, _ := strconv.Atoi(status["VmRSS"])
	u.Memory = kib << 10
	if u.Zombie {
		return u, nil
	}
	files, err := os.ReadDir(filepath.Join(procOf(pid), "fd"))
	if err != nil {
		return Usage{}, fmt.Errorf("list files of process %d: %w", pid, err)
	}
	u.Files = len(files)
	if name := programName(pid); name != "" {
		u.Name = name
	}
	return u, nil
}

func procOf(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// statusOf reads the first word of each line of a process's status, proc_pid_status(5).
func statusOf(pid int) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(procOf(pid), "status"))
	if err != nil {
		return nil, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if fields := strings.Fields(value); len(fields) > 0 {
			status[key] = fields[0]
		}
	}
	return status, nil
}

// ProcessMemory is the current and the maximum resident memory of a process, in bytes.
type ProcessMemory struct {
	Resident, Peak int
	// Files is the part of Resident that consists of pages of files, such as the executable. The rest is memory
	// that the process has written: heap, stacks, and variables.
	Files int
}

// MemoryOf reads the memory of a process. It returns an error if the process has ended.
func MemoryOf(pid int) (ProcessMemory, error) {
	status, err := statusOf(pid)
	if err != nil {
		return ProcessMemory{}, err
	}
	resident, err := strconv.Atoi(status["VmRSS"])
	if err != nil {
		return ProcessMemory{}, fmt.Errorf("read the resident memory of process %d: %w", pid, err)
	}
	peak, err := strconv.Atoi(status["VmHWM"])
	if err != nil {
		return ProcessMemory{}, fmt.Errorf("read the most memory of process %d: %w", pid, err)
	}
	files, err := strconv.Atoi(status["RssFile"])
	if err != nil {
		return ProcessMemory{}, fmt.Errorf("read the memory of process %d that is of files: %w", pid, err)
	}
	return ProcessMemory{resident << 10, peak << 10, files << 10}, nil
}

// programName returns the name of a process's executable. For Kubernetes' multi-call binary, it returns the name
// with which it was called, and Daemon for both daemons. It returns "" if there is none.
func programName(pid int) string {
	dir := procOf(pid)
	target, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return ""
	}
	// The suffix appears if the file was replaced while it was running.
	name := strings.TrimSuffix(filepath.Base(target), " (deleted)")
	switch name {
	case goDaemon:
		return Daemon
	case manyPrograms:
	default:
		return name
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return ""
	}
	called, _, _ := strings.Cut(string(line), "\x00")
	return filepath.Base(called)
}

// manyPrograms is the executable of hack/kubernetes, which contains all of Kubernetes' programs.
const manyPrograms = "kubernetes"

// errNotRunning means that no process runs a program.
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

// Pulse repeatedly stops and continues the processes of a program until the context ends, so that it responds
// slowly.
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
