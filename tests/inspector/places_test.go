// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	probe "github.com/bpfman/bpfman-operator/tests/node"
)

// TestTakesPlace attaches a program to the tracepoint that TestFullTracepoint fills.
func TestTakesPlace(t *testing.T) {
	prerequisite.NeedsRoot(t, "attaching programs needs CAP_BPF")
	if _, err := os.Stat("/sys/kernel/tracing/events"); err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Tracefs)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.TracePoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		prerequisite.Missing(t, "load a program: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { _ = p.Close() })
	l, err := link.Tracepoint("syscalls", fullTracepoint, p, nil)
	if err != nil {
		places, placesErr := probe.PlacesAt("syscalls/" + fullTracepoint)
		if placesErr != nil {
			t.Fatal(placesErr)
		}
		prerequisite.Missing(t, err.Error()+"; "+places.String(), prerequisite.Tracepoint)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullTracepoint fills a tracepoint in another process. A test then attaches a program there. In a run that
// requires tracepoints, it fails, and in others, it is skipped. In both cases, the message lists the attached
// programs.
func TestFullTracepoint(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	place := daemontest.NewPlace(t)
	holder := start(t, place, "full tracepoint")
	// Not all processes of this machine are visible.
	holders := regexp.MustCompile(fmt.Sprintf(`argument list too long; [0-9]+ of %d places are taken, by .*[0-9]+ takes_a_place held by process inspector.test \(%d\)`,
		tracepointPlaces, holder.command.Process.Pid))
	for requires, verdict := range map[string]string{"": "SKIP", "TCX": "SKIP", "TCX,Tracepoint": "FAIL"} {
		run := place.Command(t.Context(), self, "-test.v", "-test.run=^TestTakesPlace$")
		run.Env = append(os.Environ(), prerequisite.RequiresVariable+"="+requires, prerequisite.SkippedVariable+"=", "KUBEBUILDER_ASSETS=")
		output, err := run.CombinedOutput()
		if !strings.Contains(string(output), "--- "+verdict+": TestTakesPlace") || (err != nil) != (verdict == "FAIL") || !holders.Match(output) {
			t.Errorf("where %q is required: %v, want %s and %s:\n%s", requires, err, verdict, holders, output)
		}
	}
	holder.end()
	places, err := probe.PlacesAt("syscalls/" + fullTracepoint)
	if err != nil || strings.Contains(places.String(), "takes_a_place") {
		t.Errorf("once the process has ended: %s, %v", places, err)
	}
}
