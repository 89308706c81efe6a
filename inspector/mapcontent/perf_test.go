// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// Why perf event arrays can't be tailed, even if no application reads them: nobody can find out whether a CPU's place is taken,
// or take it only if it is free, so an application that starts at the same moment could lose its place.
func TestPlacesOfAPerfEventArrayAreTakenBlindly(t *testing.T) {
	array, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerfEventArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if errors.Is(err, unix.EPERM) {
		prerequisite.Missing(t, "creating maps needs CAP_BPF", prerequisite.BPF)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer array.Close()
	event := func() uint32 {
		t.Helper()
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_BPF_OUTPUT}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			prerequisite.Missing(t, "perf events need CAP_PERFMON", prerequisite.BPF)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return uint32(fd)
	}
	applications, ours := event(), event()
	if err := array.Update(uint32(0), applications, ebpf.UpdateNoExist); err == nil {
		t.Error("the kernel takes a place only if it is free")
	}
	if err := array.Update(uint32(0), applications, ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	var found uint32
	if err := array.Lookup(uint32(0), &found); err == nil {
		t.Error("the kernel says that a place is taken")
	}
	if err := array.Update(uint32(0), ours, ebpf.UpdateAny); err != nil {
		t.Errorf("the kernel keeps a place that is taken: %v", err)
	}
}
