// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/uprobe"
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
	process := func(pid int, comm, state string, arguments ...string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := errors.Join(
			os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(arguments, "\x00")+"\x00"), 0o600),
			os.WriteFile(filepath.Join(dir, "stat"), fmt.Appendf(nil, "%d (%s) %s 1", pid, comm, state), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	process(1, "bpfman-rpc", "S")
	process(7, "bpfman-ns", "R")
	process(8, "bpfman-ns", "Z")
	process(9, "bpfman-ns", "D", workerName, "acme/c1", "uprobe", "--target", "x")
	process(10, "bpfman-ns", "D", workerName, "/", "uprobe")
	process(11, "bpfman-ns", "D")
	want := []uprobe.Container{{}, {}, {Namespace: "acme", ID: "c1"}}
	of, err := abandoned(proc, 7)
	slices.SortFunc(of, func(a, b uprobe.Container) int { return strings.Compare(a.Namespace, b.Namespace) })
	if !slices.Equal(of, want) || err != nil {
		t.Errorf("%v, %v", of, err)
	}
	if _, err := abandoned(proc, 99); err == nil || !strings.Contains(err.Error(), "read the name of this process") {
		t.Errorf("%v", err)
	}
}

// A container, and all containers of a tenant, can't take the places of others.
func TestAbandonedOfATenant(t *testing.T) {
	tenant := func(n int) uprobe.Container { return uprobe.Container{Namespace: "tenant", ID: fmt.Sprint("c", n)} }
	var waiting []uprobe.Container
	attempt := func(in uprobe.Container, want string) {
		t.Helper()
		switch err := refuse(in, waiting); {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %d: %v, want %q", in, len(waiting), err, want)
			}
		case err != nil:
			t.Errorf("%s with %d: %v", in, len(waiting), err)
		default:
			waiting = append(waiting, in)
		}
	}
	for range maxOfContainer {
		attempt(tenant(1), "")
	}
	attempt(tenant(1), "2 earlier attempts still wait for a file system of the container")
	for n := range maxOfNamespace - maxOfContainer {
		attempt(tenant(2+n), "")
	}
	attempt(tenant(99), "8 earlier attempts still wait for file systems of containers of the namespace")
	attempt(uprobe.Container{Namespace: "other", ID: "c1"}, "")
	for n := len(waiting); n < maxAbandoned; n++ {
		attempt(uprobe.Container{Namespace: fmt.Sprint("ns", n), ID: "c"}, "")
	}
	attempt(uprobe.Container{Namespace: "another", ID: "c1"}, "32 earlier attempts still wait for file systems of containers that don't answer")
}
