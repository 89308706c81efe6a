// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// CheckProcesses returns a function that returns an error unless a process is still the one of its container or sandbox. It
// reads the host's /proc at a path. If the host's processes aren't visible there, it can't know, and returns nil.
func CheckProcesses(proc string) func(program.Process) error {
	return func(process program.Process) error {
		if visible(proc) != nil {
			return nil //nolint:nilerr // see above
		}
		err := isThere(proc, process)
		if errors.Is(err, errNoProcess) {
			return problem.Errorf(problem.ProcessEnded, "process %d of the container or sandbox %s has ended", process.PID, process.Of)
		}
		return err
	}
}

// errNoProcess means that no process of the pod is running.
var errNoProcess = errors.New("no process")

// isThere returns errNoProcess if a process isn't the one of its container or sandbox: see [program.Process].
func isThere(proc string, process program.Process) error {
	groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(process.PID), "cgroup"))
	if err != nil {
		return gone(err)
	}
	if process.Of == "" || !strings.Contains(string(groups), process.Of) {
		return errNoProcess
	}
	return nil
}

// visible returns an error if a proc file system doesn't show the host's processes.
func visible(proc string) error {
	if _, err := os.Stat(filepath.Join(proc, "1")); err != nil {
		return problem.Errorf(problem.ProcHidden, "the host's processes aren't visible (hidepid?): %w", err)
	}
	return nil
}

// gone returns errNoProcess for the errors of files in /proc after a process has
// ended.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return errNoProcess
	}
	return problem.Errorf(problem.ProcHidden, "read a process of a pod: %w", err)
}
