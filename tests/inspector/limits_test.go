// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// TestLimits attaches programs at one hook until the kernel accepts no more. Conflicts are
// reported from seven eighths of the limit on, if there is a limit.
func TestLimits(t *testing.T) {
	const function, tries = "do_unlinkat", 80
	if _, err := os.Stat("/sys/kernel/tracing/events"); err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Tracefs)
	}
	for what, c := range map[string]struct {
		spec   ebpf.ProgramSpec
		attach func(*ebpf.Program) (link.Link, error)
		limit  int
		full   error
		target string
	}{
		// A tracepoint that nobody else uses.
		"tracepoint": {
			ebpf.ProgramSpec{Type: ebpf.TracePoint},
			func(p *ebpf.Program) (link.Link, error) {
				return link.Tracepoint("syscalls", "sys_enter_swapoff", p, nil)
			},
			64, unix.E2BIG, "sys_enter_swapoff",
		},
		"kprobe": {
			ebpf.ProgramSpec{Type: ebpf.Kprobe},
			func(p *ebpf.Program) (link.Link, error) { return link.Kprobe(function, p, nil) },
			0, nil, "",
		},
		"fentry": {
			ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: function},
			func(p *ebpf.Program) (link.Link, error) { return link.AttachTracing(link.TracingOptions{Program: p}) },
			38, unix.E2BIG, function,
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := inspect(t)
			// Other software of this machine can use the hook, too.
			attached, others := 0, programsAt(n, c.target)
			for ; attached < tries; attached++ {
				c.spec.Instructions, c.spec.License = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, "GPL"
				p, err := ebpf.NewProgram(&c.spec)
				if err != nil {
					prerequisite.Missing(t, "load: "+err.Error(), prerequisiteOf(what))
				}
				t.Cleanup(func() { _ = p.Close() })
				l, err := c.attach(p)
				if refusal := refused(err); attached == 0 && errors.Is(refusal, errRefused) {
					prerequisite.Missing(t, refusal.Error(), prerequisiteOf(what))
				}
				if err != nil {
					// For some errors, the library keeps only the text.
					if c.full == nil || !strings.Contains(err.Error(), c.full.Error()) {
						t.Fatalf("attach number %d: %v", attached+1, err)
					}
					break
				}
				t.Cleanup(func() { _ = l.Close() })
			}
			if (c.limit == 0 && attached != tries) || (c.limit != 0 && attached+others != c.limit) {
				t.Fatalf("%d are attached beside %d of others, and the limit is %d", attached, others, c.limit)
			}
			var found []v1alpha1.BpfNodeConflict
			for deadline := time.Now().Add(within); len(found) == 0 && c.limit != 0 && time.Now().Before(deadline); {
				for _, one := range conflict.Find(n.look(true), nil) {
					if one.Type == v1alpha1.BpfNodeEventNearLimit {
						found = append(found, one)
					}
				}
			}
			// This process holds them, and leaves itself out.
			want := fmt.Sprintf("%s has all of the %d programs that the kernel allows", c.target, c.limit)
			if c.limit != 0 && (len(found) != 1 || !strings.Contains(found[0].Message, want)) {
				t.Errorf("conflicts %+v, want %q", found, want)
			}
		})
	}
}

// programsAt returns the number of programs at a tracepoint or a function.
func programsAt(n *node, target string) int {
	count := 0
	for _, program := range n.look(true).Programs {
		for _, point := range program.AttachPoints {
			if path.Base(point.Target) == target {
				count++
			}
		}
	}
	return count
}
