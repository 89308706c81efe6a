// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/btf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// kernelTypes writes types as the kernel has them for tracepoints, system calls, and functions.
func kernelTypes(t *testing.T) string {
	t.Helper()
	types, err := btf.NewBuilder(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	prototype := &btf.FuncProto{Return: &btf.Void{}}
	for _, typ := range []btf.Type{
		&btf.Typedef{Name: "btf_trace_sched_switch", Type: &btf.Pointer{Target: prototype}},
		&btf.Func{Name: "__x64_sys_openat", Type: prototype},
		&btf.Func{Name: "do_unlinkat", Type: prototype},
	} {
		if _, err := types.Add(typ); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := types.Marshal(nil, btf.KernelMarshalOptions())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, kernelItself), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A tracepoint or function that the kernel doesn't have is probably misspelled.
func TestMisnamedAttachPoints(t *testing.T) {
	tracepoint := func(name string) program.AttachPoint {
		return program.AttachPoint{Name: name, Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: name}}}}
	}
	kprobe := func(name string) program.AttachPoint {
		return program.AttachPoint{Name: name, Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_KprobeAttachInfo{KprobeAttachInfo: &gobpfman.KprobeAttachInfo{FnName: name}}}}
	}
	network := program.AttachPoint{Name: "eth0", Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{Iface: "eth0"}}}}
	const absent, refused = "`/sys/kernel/debug/tracing/events/x/y/id`", "`perf_event_open` failed"
	l := &Loader{Options: Options{KernelTypes: kernelTypes(t)}, misnamed: lru.New(maxMisnamed)}
	none := &Loader{Options: Options{KernelTypes: t.TempDir()}, misnamed: lru.New(maxMisnamed)}
	for name, test := range map[string]struct {
		loader *Loader
		point  program.AttachPoint
		text   string
		want   string
	}{
		"a tracepoint":                       {l, tracepoint("sched/sched_swich"), absent, "; did you mean sched_switch?"},
		"the entry of a system call":         {l, tracepoint("syscalls/sys_enter_opnat"), absent, "; did you mean sys_enter_openat?"},
		"its exit":                           {l, tracepoint("syscalls/sys_exit_opnat"), absent, "; did you mean sys_exit_openat?"},
		"a tracepoint that the kernel has":   {l, tracepoint("irq/sched_switch"), absent, ""},
		"a tracepoint for another reason":    {l, tracepoint("sched/sched_swich"), "`PERF_EVENT_IOC_SET_BPF` failed", ""},
		"nothing similar":                    {l, tracepoint("net/napi_poll"), absent, ""},
		"a function":                         {l, kprobe("do_unlinkt"), refused, "; did you mean do_unlinkat?"},
		"a function that the kernel has":     {l, kprobe("do_unlinkat"), refused, ""},
		"an interface":                       {l, network, refused, ""},
		"a kernel without types":             {none, kprobe("do_unlinkt"), refused, ""},
		"a tracepoint in no category at all": {l, tracepoint("sched_swich"), absent, ""},
	} {
		cause := &daemon.Error{Op: "attach to " + test.point.Name, Cause: status.Error(codes.Aborted, test.text)}
		for range 2 { // also from memory
			err := test.loader.suggestPoint(cause, test.point)
			if want := cause.Error() + test.want; err.Error() != want || !errors.Is(err, cause) {
				t.Errorf("%s: %q, want %q", name, err, want)
			}
		}
	}
	lost := &daemon.Error{Op: "attach to sched/sched_swich", Cause: status.Error(codes.DeadlineExceeded, absent)}
	if err := l.suggestPoint(lost, tracepoint("sched/sched_swich")); err.Error() != lost.Error() {
		t.Errorf("of an unknown outcome: %s", err)
	}
	if err := l.suggestPoint(nil, network); err != nil {
		t.Error(err)
	}
}
