// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filtered is an environment variable of the process that runs with the filter. The
// filter can't be removed from a process.
const filtered = "LAUNCHER_TEST_FILTERED"

func TestFilter(t *testing.T) {
	if os.Getenv(filtered) == "" {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFilter$", "-test.v")
		command.Env = append(os.Environ(), filtered+"=yes")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return
	}
	runtime.LockOSThread()
	if err := pretendMemlock(); err != nil {
		t.Fatal(err)
	}
	var before, after unix.Rlimit
	// Higher than any process can have, for any user.
	tooHigh := unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}
	for _, test := range []struct {
		name string
		call func() error
		want error
	}{
		{"reading the limit", func() error { return prlimit(unix.RLIMIT_MEMLOCK, nil, &before) }, nil},
		{"raising it by prlimit64", func() error {
			return prlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
		}, nil},
		{"raising it by setrlimit", func() error { return setrlimit(unix.RLIMIT_MEMLOCK, &tooHigh) }, nil},
		{"reading it again", func() error { return prlimit(unix.RLIMIT_MEMLOCK, nil, &after) }, nil},
		{"raising another", func() error { return prlimit(unix.RLIMIT_NOFILE, &tooHigh, nil) }, unix.EPERM},
		{"raising another by setrlimit", func() error { return setrlimit(unix.RLIMIT_NOFILE, &tooHigh) }, unix.EPERM},
	} {
		if err := test.call(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
	if before != after || before.Max == 0 {
		t.Errorf("the limit was %+v and is %+v", before, after)
	}
}

// prlimit and setrlimit make the system calls directly, on this thread.
func prlimit(resource int, set, get *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func setrlimit(resource int, set *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETRLIMIT, uintptr(resource), uintptr(unsafe.Pointer(set)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
