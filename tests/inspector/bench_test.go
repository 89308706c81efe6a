// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/report"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/tests/must"
	probed "github.com/bpfman/bpfman-operator/tests/node"
)

const (
	processes = 500
	// scans is the number of measured scans. The result is the median.
	scans = 21
	// idle is how long a node must be quiet to measure the idle inspector: the time in
	// which it reads everything twice.
	idle = 2 * time.Minute
	// attempts is the maximum number of attempts to find such a time.
	attempts = 5
	// clockTick is the unit of times in /proc on all current architectures.
	clockTick = 10 * time.Millisecond
)

// BenchmarkInspector measures, on this kernel, a complete scan of a node with 200
// programs, 200 links, and 500 processes. With the same state, it then measures the
// resources of the inspector's own binary on an idle node: memory, CPU, and writes. One
// run is one measurement (-benchtime 1x).
func BenchmarkInspector(b *testing.B) {
	at := place(b)
	holder, refusal := try(b, at, "many")
	if refusal != "" {
		b.Fatal(refusal)
	}
	for range processes {
		command := exec.CommandContext(b.Context(), "sleep", "infinity")
		must.Succeed(b, command.Start())
		b.Cleanup(func() { _ = command.Wait() }) // the test's context kills it
	}
	measured := map[string]any{}
	for b.Loop() {
		took := make([]time.Duration, 0, scans)
		for range scans {
			took = append(took, scan(b, holder.Programs))
		}
		slices.Sort(took)
		milliseconds := float64(took[scans/2]) / float64(time.Millisecond)
		b.ReportMetric(milliseconds, "scan-ms")
		measured["inspector_scan_ms"] = figures.Round(milliseconds)

		p := startInspector(b, at)
		p.await("all programs are there", func(node *v1alpha1.BpfNode) bool { return has(node, holder.Programs) })
		cpu, writes := rest(b, p)
		b.ReportMetric(cpu, "idle-cpu-percent")
		b.ReportMetric(float64(writes), "idle-writes")
		memory, err := probed.MemoryOf(p.pid)
		if err != nil {
			b.Fatal(err)
		}
		resident := float64(memory.Resident) / (1 << 20)
		b.ReportMetric(resident, "rss-mb")
		measured["inspector_idle_cpu_percent"], measured["bpfnode_writes_idle"], measured["inspector_rss_mb"] = figures.Round(cpu), writes, figures.Round(resident)
	}
	figures.Keep(b, measured)
}

// scan reads everything, without cached data.
func scan(b *testing.B, programs []uint32) time.Duration {
	b.Helper()
	found, err := inventory.New("/proc")
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if _, err := found.Update(inventory.Scope{All: true}, began); err != nil {
		b.Fatal(err)
	}
	status := report.Status(found.Facts())
	took := time.Since(began)
	if !has(&v1alpha1.BpfNode{Status: *status}, programs) {
		b.Fatal("programs are missing")
	}
	return took
}

// rest measures the inspector while nothing changes in the kernel: the percentage of one
// CPU, and the writes of its BpfNode.
func rest(b *testing.B, p *reporter) (cpu float64, writes int) {
	b.Helper()
	for range attempts {
		<-time.After(30 * time.Second) // wait until it has handled the last change
		before, version, used := ids(b), p.read(p.t.Context()).ResourceVersion, cpuTime(b, p.pid)
		<-time.After(idle)
		took := cpuTime(b, p.pid) - used
		if p.read(p.t.Context()).ResourceVersion != version {
			writes++
		}
		if ids(b).Equal(before) {
			return 100 * took.Seconds() / idle.Seconds(), writes
		}
		writes = 0
		b.Log("programs came or went: once more")
	}
	b.Fatalf("the kernel's programs changed in each of %d times %v: is something else running?", attempts, idle)
	return 0, 0
}

func ids(b *testing.B) kernel.IDs {
	b.Helper()
	all, err := kernel.List()
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// cpuTime returns the time that a process has used, in user and kernel mode.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat := must.Read(b, filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	var user, system int64
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * clockTick
}
