// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Commands of bpf(2) that cilium/ebpf doesn't export. Their attributes contain pointers, and not numbers, because what is on a
// goroutine's stack can move until the call.

// nextLink returns the id of the next link. cilium/ebpf's iterator opens each link, which takes much longer.
func nextLink(id uint32) (uint32, error) {
	attributes := struct{ start, next, flags uint32 }{start: id}
	_, err := bpf(unix.BPF_LINK_GET_NEXT_ID, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)) //nolint:gosec // the interface of the system call
	return attributes.next, err
}

// OpenPin opens the object that is pinned at path. It opens the object read-only if the kernel supports that; the
// kernel only opens links for writing. The caller closes the descriptor.
func OpenPin(path string) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, fmt.Errorf("open pin %q: %w", path, err)
	}
	for _, flags := range []uint32{unix.BPF_F_RDONLY, 0} {
		attributes := struct {
			path      unsafe.Pointer
			fd, flags uint32
		}{path: unsafe.Pointer(name), flags: flags} //nolint:gosec // the interface of the system call
		var fd int
		fd, err = bpf(unix.BPF_OBJ_GET, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)) //nolint:gosec // the interface of the system call
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	return -1, fmt.Errorf("open pin %q: %w", path, err)
}

// MapTypes returns the BTF ids of a map's key and value types, or 0 if it has none. cilium/ebpf doesn't provide
// them.
func MapTypes(fd int) (key, value uint32, err error) {
	var info struct { // struct bpf_map_info
		_                                   [64]byte
		btfID, btfKeyTypeID, btfValueTypeID uint32
		_                                   uint32
	}
	if err := describe(fd, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil { //nolint:gosec // the interface of the system call
		return 0, 0, fmt.Errorf("read the types of a map: %w", err)
	}
	return info.btfKeyTypeID, info.btfValueTypeID, nil
}

// loadedFor returns the function of the kernel or of a module that a program was loaded for, or one without an object if it is
// another program's. Before Linux 6.0, the kernel doesn't say, and the result is empty. cilium/ebpf doesn't provide it.
func loadedFor(program uint32) function {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return function{}
	}
	defer p.Close()
	var info struct { // struct bpf_prog_info
		_                        [220]byte
		attachObject, attachType uint32
		_                        uint32
	}
	if describe(p.FD(), unsafe.Pointer(&info), unsafe.Sizeof(info)) != nil { //nolint:gosec // the interface of the system call
		return function{}
	}
	return function{object: info.attachObject, typeID: info.attachType}
}

// describe has the kernel write what it knows about an object.
func describe(fd int, info unsafe.Pointer, size uintptr) error {
	attributes := struct {
		fd, length uint32
		info       unsafe.Pointer
	}{uint32(fd), uint32(size), info} //nolint:gosec // the interface of the system call
	_, err := bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)) //nolint:gosec // the interface of the system call
	return err
}

// PerfProgram returns the program of a process's perf event, and what the event is attached to. The process must
// be in the caller's PID namespace. If the event has no program, it returns os.ErrNotExist.
func PerfProgram(pid, fd uint32) (program uint32, attached Attachment, err error) {
	target := make([]byte, unix.PathMax)
	attributes := struct {
		pid, fd, flags, length    uint32
		buffer                    unsafe.Pointer
		program, kind             uint32
		probeOffset, probeAddress uint64
	}{pid: pid, fd: fd, length: uint32(len(target)), buffer: unsafe.Pointer(&target[0])} //nolint:gosec // the interface of the system call
	_, err = bpf(unix.BPF_TASK_FD_QUERY, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)) //nolint:gosec // the interface of the system call
	if err != nil {
		return 0, Attachment{}, fmt.Errorf("query the program of perf event %d of process %d: %w", fd, pid, err)
	}
	name := unix.ByteSliceToString(target)
	switch attributes.kind {
	case unix.BPF_FD_TYPE_RAW_TRACEPOINT:
		return attributes.program, Attachment{Type: rawTracepoint, Target: name}, nil
	case unix.BPF_FD_TYPE_TRACEPOINT:
		return attributes.program, Attachment{Type: tracepoint, Target: name}, nil
	case unix.BPF_FD_TYPE_KPROBE:
		return attributes.program, Attachment{Type: kprobe, Target: kernelFunction(name, attributes.probeOffset, attributes.probeAddress)}, nil
	case unix.BPF_FD_TYPE_KRETPROBE:
		return attributes.program, Attachment{Type: kretprobe, Target: kernelFunction(name, attributes.probeOffset, attributes.probeAddress)}, nil
	case unix.BPF_FD_TYPE_UPROBE:
		return attributes.program, Attachment{Type: uprobe, Target: atOffset(name, attributes.probeOffset)}, nil
	case unix.BPF_FD_TYPE_URETPROBE:
		return attributes.program, Attachment{Type: uretprobe, Target: atOffset(name, attributes.probeOffset)}, nil
	}
	return attributes.program, Attachment{Type: perfEvent}, nil
}

func bpf(command uintptr, attributes unsafe.Pointer, size uintptr) (int, error) {
	for {
		result, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
		if errno == 0 {
			return int(result), nil
		}
		if !errors.Is(errno, unix.EINTR) && !errors.Is(errno, unix.EAGAIN) {
			return -1, errno
		}
	}
}
