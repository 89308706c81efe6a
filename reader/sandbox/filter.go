// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package sandbox

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// architectures are the kernel's numbers of architectures. On another one, there is no
// filter.
var architectures = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "ppc64le": unix.AUDIT_ARCH_PPC64LE,
	"riscv64": unix.AUDIT_ARCH_RISCV64, "s390x": unix.AUDIT_ARCH_S390X,
}

// denied are the system calls that fail. They start programs, or affect other processes,
// the kernel, or the file system. io_uring would do the same without system calls.
var denied = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_SETPGID, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET,
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// argumentRule is about an argument of a system call, by its index. The call fails if the argument has one of the values or,
// if only is set, another one. The kernel uses the lower halves of these arguments.
type argumentRule struct {
	number uint32
	index  uint32
	values []uint32
	only   bool
}

// ownerRequests are ioctl's requests for what fcntl does with F_SETOWN: FIOSETOWN and SIOCSPGRP in asm-generic/sockios.h.
var ownerRequests = []uint32{0x8901, 0x8902}

// argumentRules returns the rules for a process.
func argumentRules(pid uint32) []argumentRule {
	return []argumentRule{
		{unix.SYS_SOCKET, 0, []uint32{unix.AF_UNIX}, false},
		// The owner of a file gets its signals, of any kind.
		{unix.SYS_FCNTL, 1, []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG}, false},
		{unix.SYS_IOCTL, 1, ownerRequests, false},
		// The runtime reads and sets the limits of this process, where 0 is this one, and signals its own threads.
		{unix.SYS_PRLIMIT64, 0, []uint32{0, pid}, true},
		{unix.SYS_TGKILL, 0, []uint32{pid}, true},
	}
}

// Offsets in struct seccomp_data: the number of the system call, the architecture, and
// the first argument. Each argument has argumentSize bytes. firstX32 is the first number of the
// x32 variants on amd64.
const (
	atNumber     = 0
	atArch       = 4
	atArgument   = 16
	argumentSize = 8
	firstX32     = 0x40000000
)

// refuse is the label of a jump to the refusal. Others are numbers of instructions to jump over.
const refuse = 255

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func equal(value uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: then, Jf: otherwise, K: value}
}

// instructions returns the instructions that check a rule. The number of the system call is loaded before and after them.
func (r argumentRule) instructions() []unix.SockFilter {
	at := uint32(atArgument) + argumentSize*r.index
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		at += 4 // the lower half is after the higher one
	}
	count := uint8(len(r.values)) //nolint:gosec // a few
	checks := []unix.SockFilter{equal(r.number, 0, count+2), load(at)}
	for i, value := range r.values {
		left := count - 1 - uint8(i)
		switch {
		case !r.only:
			checks = append(checks, equal(value, refuse, 0))
		case left > 0:
			checks = append(checks, equal(value, left, 0))
		default:
			checks = append(checks, equal(value, 0, refuse))
		}
	}
	return append(checks, load(atNumber))
}

// filter returns the program that the kernel runs for each system call of a process.
func filter(pid int) []unix.SockFilter {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return nil
	}
	program := []unix.SockFilter{
		load(atArch),
		equal(arch, 0, refuse), // another architecture has other numbers
		load(atNumber),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: refuse, K: firstX32},
	}
	for _, number := range denied {
		program = append(program, equal(number, refuse, 0))
	}
	for _, rule := range argumentRules(uint32(pid)) { //nolint:gosec // not negative
		program = append(program, rule.instructions()...)
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	)
	last := len(program) - 1
	for i := range program {
		for _, jump := range []*uint8{&program[i].Jt, &program[i].Jf} {
			if *jump == refuse {
				*jump = uint8(last - i - 1) //nolint:gosec // the program is short
			}
		}
	}
	return program
}

// install makes the kernel run a program for each system call of all threads.
func install(program []unix.SockFilter) {
	if len(program) == 0 {
		return
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // the program is short
	// A kernel without support refuses it.
	_, _, _ = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p))) //nolint:gosec // the system call's argument
	runtime.KeepAlive(program)
}
