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
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// Offsets in struct seccomp_data: the number of the system call, the architecture, and
// the first argument. firstX32 is the first number of the x32 variants on amd64.
const (
	atNumber   = 0
	atArch     = 4
	atArgument = 16
	firstX32   = 0x40000000
)

// filter returns the program that the kernel runs for each system call of a process.
func filter(pid int) []unix.SockFilter {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return nil
	}
	argument := uint32(atArgument)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		argument += 4 // the lower half is after the higher one
	}
	// Labels of jumps: to the next instruction, over some of them, or to the refusal.
	const refuse = 255
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(value uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: then, Jf: otherwise, K: value}
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
	program = append(program,
		equal(unix.SYS_SOCKET, 0, 3),
		load(argument),
		equal(unix.AF_UNIX, refuse, 0),
		load(atNumber),
		// Go's runtime signals its own threads.
		equal(unix.SYS_TGKILL, 0, 2),
		load(argument),
		equal(uint32(pid), 0, refuse), //nolint:gosec // not negative
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
