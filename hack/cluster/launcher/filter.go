// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in the kernel's struct seccomp_data. On little-endian machines, which both
// supported architectures are, the low half of an argument comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// low and high return the offsets of the halves of the system call's nth argument.
func low(n uint32) uint32  { return offsetArgs + 8*n }
func high(n uint32) uint32 { return low(n) + 4 }

// pretendMemlock makes the kernel report success, without any effect, when this thread
// or a program that it executes sets RLIMIT_MEMLOCK. Reading limits and setting other
// limits isn't affected.
func pretendMemlock() error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("%s is not supported", runtime.GOARCH)
	}
	filter := memlockFilter(arch)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	install := func() error {
		return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	err := install()
	if errors.Is(err, unix.EACCES) { // without CAP_SYS_ADMIN, the filter requires no_new_privs
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		err = install()
	}
	runtime.KeepAlive(filter)
	return err
}

// memlockFilter reports success for
//
//	setrlimit(RLIMIT_MEMLOCK, …)
//	prlimit64(…, RLIMIT_MEMLOCK, new != NULL, old == NULL)
//
// and allows all other calls. A call that also reads the old limit must get it.
func memlockFilter(arch uint32) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
	)
	// Jt and Jf are the numbers of instructions to skip. Instruction 17 allows the call,
	// and 18 reports success.
	return []unix.SockFilter{
		/*  0 */ {Code: load, K: offsetArch},
		/*  1 */ {Code: equal, K: arch, Jf: 15}, // else 17
		/*  2 */ {Code: load, K: offsetNumber},
		/*  3 */ {Code: equal, K: unix.SYS_SETRLIMIT, Jt: 9}, // 13
		/*  4 */ {Code: equal, K: unix.SYS_PRLIMIT64, Jf: 12}, // else 17
		/*  5 */ {Code: load, K: low(3)},
		/*  6 */ {Code: equal, K: 0, Jf: 10}, // else 17
		/*  7 */ {Code: load, K: high(3)},
		/*  8 */ {Code: equal, K: 0, Jf: 8}, // else 17
		/*  9 */ {Code: load, K: low(2)},
		/* 10 */ {Code: equal, K: 0, Jf: 4}, // else 15
		/* 11 */ {Code: load, K: high(2)},
		/* 12 */ {Code: equal, K: 0, Jt: 4, Jf: 2}, // 17, else 15
		/* 13 */ {Code: load, K: low(0)},
		/* 14 */ {Code: equal, K: unix.RLIMIT_MEMLOCK, Jt: 3, Jf: 2}, // 18, else 17
		/* 15 */ {Code: load, K: low(1)},
		/* 16 */ {Code: equal, K: unix.RLIMIT_MEMLOCK, Jt: 1}, // 18, else 17
		/* 17 */ {Code: result, K: unix.SECCOMP_RET_ALLOW},
		/* 18 */ {Code: result, K: unix.SECCOMP_RET_ERRNO},
	}
}
