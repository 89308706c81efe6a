// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/runtimes"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestRunTimes compares a program with one of the same name and owner that takes longer, as the inspector does for
// rollouts.
func TestRunTimes(t *testing.T) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		prerequisite.Missing(t, "switch statistics on: "+err.Error(), prerequisite.BPF)
	}
	defer func() { _ = counting.Close() }()
	averages, owner := runtimes.Averages{Runs: kernel.Runs}, &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "counter"}
	n := inspect(t)
	n.owners = map[uint32]*v1alpha1.BpfNodeOwner{}
	// run loads a program with some instructions, runs it often, and returns its run time.
	run := func(instructions int) *v1alpha1.BpfNodeRunTime {
		t.Helper()
		spec := &ebpf.ProgramSpec{Name: "measured", Type: ebpf.SchedCLS, License: "GPL"}
		for range instructions {
			spec.Instructions = append(spec.Instructions, asm.FnKtimeGetNs.Call())
		}
		spec.Instructions = append(spec.Instructions, asm.Mov.Imm(asm.R0, 0), asm.Return())
		p, err := ebpf.NewProgram(spec)
		if err != nil {
			prerequisite.Missing(t, "load a program: "+err.Error(), prerequisite.BPF)
		}
		t.Cleanup(func() { _ = p.Close() })
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		n.owners[uint32(id)] = owner
		averages.Add(n.look(false), time.Now())
		if _, _, err := p.Benchmark(make([]byte, 64), 5000, nil); err != nil {
			t.Fatal(err)
		}
		if !averages.Measure() {
			t.Error("no average has changed")
		}
		status := n.look(false)
		averages.Add(status, time.Now())
		return find(status, uint32(id)).RunTime
	}
	short := run(1)
	if short.AverageNanoseconds <= 0 || short.PreviousNanoseconds != 0 {
		t.Errorf("the first program: %+v", short)
	}
	long := run(1000)
	if long.PreviousNanoseconds != short.AverageNanoseconds || long.AverageNanoseconds < 2*long.PreviousNanoseconds {
		t.Errorf("the program that takes longer: %+v, and the first %+v", long, short)
	}
}

// BenchmarkStatistics measures the cost of the kernel's statistics for each run of a program, which
// docs/monitoring.md documents. The program only returns.
func BenchmarkStatistics(b *testing.B) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "returns", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		prerequisite.Missing(b, "load a program: "+err.Error(), prerequisite.BPF)
	}
	b.Cleanup(func() { _ = p.Close() })
	frame := make([]byte, 64)
	measure := func(b *testing.B) {
		b.Helper()
		_, each, err := p.Benchmark(frame, b.N, b.ResetTimer)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(each.Nanoseconds()), "ns/run")
	}
	b.Run("off", measure)
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		prerequisite.Missing(b, "switch statistics on: "+err.Error(), prerequisite.BPF)
	}
	b.Run("on", measure)
	must.Succeed(b, counting.Close())
}
