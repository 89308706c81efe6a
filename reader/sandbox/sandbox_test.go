// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is the variable with which this test's binary runs itself in the sandbox.
const inside = "BPFMAN_TEST_SANDBOX"

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(m.Run())
	}
	var paths paths
	if err := json.Unmarshal([]byte(os.Getenv(inside)), &paths); err != nil {
		os.Exit(1)
	}
	Enter(paths.Allowed)
	if err := json.NewEncoder(os.Stdout).Encode(paths.try()); err != nil {
		os.Exit(1)
	}
}

// paths are what the process in the sandbox tries to use.
type paths struct{ Secret, Allowed, Socket, Written, Trusted, URL string }

// try returns the errors of what the process tries.
func (p paths) try() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	results := map[string]string{}
	note := func(what string, err error) {
		results[what] = ""
		if err != nil {
			results[what] = err.Error()
		}
		if errors.Is(err, os.ErrPermission) {
			results[what] = "denied"
		}
	}
	_, err := os.ReadFile(p.Secret)
	note("read", err)
	note("write", os.WriteFile(p.Written, nil, 0o600))
	_, err = os.ReadFile(p.Allowed)
	note("read what is allowed", err)
	_, err = os.ReadFile(p.Trusted)
	note("certificates", err)
	_, err = (&net.Dialer{}).DialContext(ctx, "unix", p.Socket)
	note("socket", err)
	note("execute", exec.CommandContext(ctx, "/bin/true").Run())
	note("kill", syscall.Kill(os.Getppid(), 0))
	// Limits of the parent end it, and so does a signal of a file that it owns.
	note("limits of another process", unix.Prlimit(os.Getppid(), unix.RLIMIT_CPU, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil))
	note("own limits", unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil))
	note("own limits by id", unix.Prlimit(os.Getpid(), unix.RLIMIT_CORE, nil, &unix.Rlimit{}))
	for what, command := range map[string]int{"owner": unix.F_SETOWN, "owner with a type": unix.F_SETOWN_EX, "signal": unix.F_SETSIG} {
		_, err := unix.FcntlInt(0, command, 0)
		note(what, err)
	}
	note("owner by ioctl", unix.IoctlSetPointerInt(0, 0x8901, 0))
	_, err = unix.FcntlInt(1, unix.F_GETFL, 0)
	note("flags", err)
	note("priority", unix.Setpriority(unix.PRIO_PROCESS, os.Getppid(), 0))
	note("processors", unix.SchedSetaffinity(os.Getppid(), &unix.CPUSet{1}))
	_, _, errno := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
	note("bpf", errnoOf(errno))
	_, _, errno = unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	note("io_uring", errnoOf(errno))
	note("mount", unix.Mount("none", "/mnt", "tmpfs", 0, ""))
	// All threads are restricted, and the runtime still works.
	for range 8 {
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			done <- err
		}()
		note("thread", <-done)
	}
	runtime.GC()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, http.NoBody)
	if err == nil {
		var response *http.Response
		if response, err = http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}
	note("network", err)
	_, err = net.DefaultResolver.LookupHost(ctx, "localhost")
	note("names", err)
	return results
}

func errnoOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func TestEnter(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	dir := t.TempDir()
	p := paths{
		Secret: filepath.Join(dir, "token"), Socket: filepath.Join(dir, "bpfman.sock"), Written: filepath.Join(dir, "written"),
		Trusted: filepath.Join(dir, "ca.pem"), URL: server.URL, Allowed: filepath.Join(dir, "types"),
	}
	for _, path := range []string{p.Secret, p.Trusted, p.Allowed} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self := exec.CommandContext(t.Context(), os.Args[0])
	self.Env = append(os.Environ(), inside+"="+string(text), "SSL_CERT_FILE="+p.Trusted)
	out, err := self.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for what, want := range map[string]string{
		"read": "denied", "write": "denied", "certificates": "", "read what is allowed": "", "socket": "denied", "execute": "denied", "kill": "denied", "bpf": "denied",
		"limits of another process": "denied", "own limits": "", "own limits by id": "", "owner": "denied", "owner with a type": "denied", "signal": "denied",
		"owner by ioctl": "denied", "flags": "", "priority": "denied", "processors": "denied", "io_uring": "denied", "mount": "denied", "thread": "denied", "network": "", "names": "",
	} {
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 && (what == "read" || what == "write") {
			t.Logf("%s: %q, because this kernel has no Landlock", what, got[what])
			continue
		}
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
}
