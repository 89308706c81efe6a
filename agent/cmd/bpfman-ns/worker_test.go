// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main(m, map[string]sandbox.Child{
		"look": func(args []string) error {
			_, err := os.Stat(args[0])
			return err
		},
		"fail":    func([]string) error { return errors.New("no such function") },
		"succeed": func([]string) error { return nil },
	})
}

// The helper ends with its worker's result.
func TestWorker(t *testing.T) {
	sandbox.Root(t)
	if err := run(sandbox.Command(t, "succeed"), timeLimit); err != nil {
		t.Error(err)
	}
	if err := run(sandbox.Command(t, "fail"), timeLimit); err == nil || err.Error() != "no such function" {
		t.Errorf("%v", err)
	}
}

// The daemon doesn't wait for a worker that waits for a file system of a container, even beyond SIGKILL.
func TestAbandoned(t *testing.T) {
	served := filepath.Join(sandbox.Root(t), "served")
	asked := sandbox.MountSilentFUSE(t, served)
	worker := sandbox.Command(t, "look", filepath.Join(served, "x"))
	begin := time.Now()
	err := run(worker, time.Second)
	if want := "not done after 1s, and a file system of the container keeps it from ending"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if took := time.Since(begin); took > timeLimit {
		t.Errorf("it took %s", took)
	}
	if len(asked) == 0 {
		t.Error("the worker didn't look into the file system")
	}
	if err := unix.Kill(worker.Process.Pid, 0); err != nil {
		t.Errorf("the worker has ended: %v", err)
	}
}

// Workers that don't end are counted.
func TestTooManyAreAbandoned(t *testing.T) {
	proc := t.TempDir()
	process := func(pid int, comm, state string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := errors.Join(
			os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "stat"), fmt.Appendf(nil, "%d (%s) %s 1", pid, comm, state), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	process(1, "bpfman-rpc", "S")
	process(7, "bpfman-ns", "R")
	process(8, "bpfman-ns", "Z")
	process(9, "bpfman-ns", "D")
	process(10, "bpfman-ns", "D")
	if count, err := abandoned(proc, 7); count != 2 || err != nil {
		t.Errorf("%d, %v", count, err)
	}
	if _, err := abandoned(proc, 99); err == nil || !strings.Contains(err.Error(), "read the name of this process") {
		t.Errorf("%v", err)
	}
}
