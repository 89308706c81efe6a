// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// The ids of programs and those of the kernel's types are independent numbers, so a link can trace a program that has the id of
// types of the kernel.
func TestTracedProgramWithTheIDOfKernelTypes(t *testing.T) {
	const object, typeID = 7, 3
	links := Links{functions: map[function]string{{false, object, typeID}: "vfs_read", {true, object, typeID}: "count_packets"}}
	info := &link.TracingInfo{AttachType: unix.BPF_TRACE_FENTRY, TargetObjectId: object, TargetBtfId: typeID}
	ofKernel, ofProgram := Attachment{Type: "fentry", Target: "vfs_read"}, Attachment{Type: "fentry", Target: "count_packets", TargetProgram: object}
	for name, c := range map[string]struct {
		loadedFor function
		want      Attachment
	}{
		"a function of the kernel":                 {function{false, object, typeID}, ofKernel},
		"a function of a program":                  {function{false, 0, typeID}, ofProgram},
		"a kernel that doesn't say (before 6.0)":   {function{}, ofKernel},
		"a function of a program with other types": {function{false, 9, typeID}, ofProgram},
	} {
		t.Run(name, func(t *testing.T) {
			if got := links.decodeTracing(info, c.loadedFor); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// What a program was loaded for is the kernel's answer, at its place in the kernel's structure.
func TestLoadedFor(t *testing.T) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_process_exit", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if errors.Is(err, unix.EPERM) {
		prerequisite.Missing(t, "loading programs needs CAP_BPF and CAP_PERFMON", prerequisite.BPF)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	loaded := loadedFor(uint32(id))
	if name, err := kernelFunctionOf(loaded.object, loaded.typeID); err != nil || name != "btf_trace_sched_process_exit" {
		t.Errorf("%+v is %q, %v", loaded, name, err)
	}
}
