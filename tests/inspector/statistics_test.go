// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

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
	if err := counting.Close(); err != nil {
		b.Fatal(err)
	}
}
