// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/tests/node"
)

// process is a measured process.
type process struct{ pid int }

// cpu returns the CPU time of all threads of the process.
func (p process) cpu() (time.Duration, error) {
	// See clock_getcpuclockid(3): this is the scheduler's clock of a process, in nanoseconds.
	clock := int32(^p.pid)<<3 | 2 //nolint:gosec // process ids are smaller than 2^22
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", p.pid, err)
	}
	return time.Duration(t.Nano()), nil
}

const mebi = 1 << 20

// memory contains the resident memory of a process, its maximum, and the part of it that consists of pages of
// files, in MiB.
type memory struct{ resident, peak, files float64 }

func (p process) memory() (memory, error) {
	used, err := node.MemoryOf(p.pid)
	return memory{float64(used.Resident) / mebi, float64(used.Peak) / mebi, float64(used.Files) / mebi}, err
}

// child finds a child process of this one by the name of its executable.
func child(name string) (process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return process{}, fmt.Errorf("list processes: %w", err)
	}
	for _, stat := range stats {
		content, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// The name is in parentheses, and can contain spaces. The state and the parent follow.
		_, rest, _ := strings.Cut(string(content), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := filepath.Dir(stat)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		path, _, _ := strings.Cut(string(command), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && filepath.Base(path) == name {
			return process{pid}, nil
		}
	}
	return process{}, fmt.Errorf("no process %s was started", name)
}

// component is a process that the benchmark starts and stops.
type component struct {
	process
	name    string
	log     string
	command *exec.Cmd
	ended   chan struct{}
	err     error
}

// startComponent starts an executable. Its output goes to a file with its name.
func startComponent(dir, path string, env []string, args ...string) (*component, error) {
	c := &component{name: filepath.Base(path), ended: make(chan struct{})}
	c.log = filepath.Join(dir, c.name+".log")
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer out.Close()
	c.command = exec.Command(path, args...) //nolint:noctx // stop ends it, so that it can clean up
	c.command.Env = append(os.Environ(), env...)
	c.command.Stdout, c.command.Stderr = out, out
	c.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.pid = c.command.Process.Pid
	go func() {
		c.err = c.command.Wait()
		close(c.ended)
	}()
	return c, nil
}

// running returns an error if the process has ended.
func (c *component) running() error {
	select {
	case <-c.ended:
		log, _ := os.ReadFile(c.log)
		return fmt.Errorf("%s has ended (%w): %s", c.name, cmpErr(c.err), tail(log))
	default:
		return nil
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

func tail(log []byte) []byte {
	const most = 2000
	return log[max(0, len(log)-most):]
}

// stop stops the process like Kubernetes: with SIGTERM, and later with SIGKILL.
func (c *component) stop(ctx context.Context) {
	_ = c.command.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	select {
	case <-c.ended:
	case <-ctx.Done():
		_ = c.command.Process.Kill()
		<-c.ended
	}
}
