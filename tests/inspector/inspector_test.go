// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package inspector tests the inspector on the real kernel. What others load, attach,
// hold, and leave must be found, with the same result as bpftool's.
package inspector

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/report"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	// within is the maximum time until a change is found.
	within = 10 * time.Second
	// pace is the interval between the inspector's rounds. Most rounds don't read
	// everything.
	pace = time.Second
)

// place returns a place with an interface near, whose other end is far.
func place(tb testing.TB) *daemontest.Place {
	tb.Helper()
	p := daemontest.NewPlace(tb)
	if _, err := run(tb, p, "ip", "link", "add", near, "up", "type", "veth", "peer", "name", far); err != nil {
		tb.Fatal(err)
	}
	if _, err := run(tb, p, "ip", "link", "set", far, "up"); err != nil {
		tb.Fatal(err)
	}
	return p
}

// node is the inspected node, which is this machine.
type node struct {
	t         *testing.T
	inventory *inventory.Inventory
	owners    map[uint32]*v1alpha1.BpfNodeOwner
	last      map[uint32][]v1alpha1.BpfNodeHolder
}

func inspect(t *testing.T) *node {
	t.Helper()
	found, err := inventory.New("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, inventory: found}
	n.look(true)
	return n
}

// look returns the node's status.
func (n *node) look(all bool) *v1alpha1.BpfNodeStatus {
	n.t.Helper()
	if _, err := n.inventory.Update(inventory.Scope{All: all}, time.Now()); err != nil {
		n.t.Fatal(err)
	}
	facts := n.inventory.Facts()
	facts.Owners, facts.Last = n.owners, n.last
	status := report.Status(facts)
	n.last = report.Processes(status)
	return status
}

// await waits until a program satisfies a condition. If there should be no program,
// right gets nil.
func (n *node) await(id uint32, right func(*v1alpha1.BpfNodeProgram) bool) {
	n.t.Helper()
	n.eventually(func() error {
		p := find(n.look(false), id)
		if !right(p) {
			return fmt.Errorf("program %d is %s; couldn't be read: %v", id, describe(p), n.inventory.Failures())
		}
		return nil
	})
}

// eventually waits until check returns nil, and calls it once in each of the inspector's rounds.
func (n *node) eventually(check func() error) {
	n.t.Helper()
	must.Succeed(n.t, eventually.Succeeds(n.t.Context(), within, pace, func(context.Context) error { return check() }))
}

func gone(p *v1alpha1.BpfNodeProgram) bool { return p == nil }

func find(status *v1alpha1.BpfNodeStatus, id uint32) *v1alpha1.BpfNodeProgram {
	i := slices.IndexFunc(status.Programs, func(p v1alpha1.BpfNodeProgram) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &status.Programs[i]
}

func describe(p *v1alpha1.BpfNodeProgram) string {
	if p == nil {
		return "not there"
	}
	return fmt.Sprintf("%+v", *p)
}

// heldBy reports whether exactly one process holds the program.
func heldBy(p *v1alpha1.BpfNodeProgram, pid int, holds ...string) bool {
	if p == nil || len(p.Holders) != len(holds) {
		return false
	}
	for i, holder := range p.Holders {
		if holder.Holds != holds[i] || int(holder.PID) != pid || holder.Process != "inspector.test" || holder.Gone || holder.Path != "" {
			return false
		}
	}
	return true
}

// attached reports whether the program is attached at exactly the wanted point. If there
// is a link, its id must be known. The network namespace must be known too, and isn't
// the host's.
func attached(p *v1alpha1.BpfNodeProgram, linked bool, want v1alpha1.BpfNodeAttachPoint) bool {
	if p == nil || len(p.AttachPoints) != 1 {
		return false
	}
	is := p.AttachPoints[0]
	if (is.LinkID != 0) != linked || (is.NetNs != "") != (is.Interface != "" || is.Type == "sk_lookup") {
		return false
	}
	is.LinkID, is.NetNs = 0, ""
	// The group is only known if the host has tracefs mounted.
	is.Target = strings.TrimPrefix(is.Target, "syscalls/")
	return is == want
}

// TestHeld loads and attaches programs in a process, checks them, and checks that they
// disappear with the process.
func TestHeld(t *testing.T) {
	const program, link = "program", "link"
	type point = v1alpha1.BpfNodeAttachPoint
	for what, want := range map[string]struct {
		name, kind string
		point      *point
		unlinked   bool
		holds      []string
	}{
		"socket filter":  {"in_no_hook", "socket_filter", nil, true, []string{program}},
		"tracepoint":     {"on_tracepoint", "tracepoint", &point{Type: "tracepoint", Target: "sys_enter_kill"}, false, []string{program, link}},
		"perf event":     {"on_perf_event", "tracepoint", &point{Type: "tracepoint", Target: "sys_enter_kill"}, true, []string{program}},
		"raw tracepoint": {"on_raw_tracepoi", "raw_tracepoint", &point{Type: "raw_tracepoint", Target: "sched_process_exit"}, false, []string{program, link}},
		"xdp link":       {"xdp_linked", "xdp", &point{Type: "xdp", Interface: near, Mode: "generic"}, false, []string{program, link}},
		"xdp native":     {"xdp_native", "xdp", &point{Type: "xdp", Interface: near, Mode: "native"}, true, []string{program}},
		"cgroup link":    {"in_cgroup", "cgroup_skb", &point{Type: "cgroup_inet_egress", Target: cgroupPath, Position: 1}, false, []string{program, link}},
		"cgroup":         {"in_cgroup_alone", "cgroup_skb", &point{Type: "cgroup_inet_ingress", Target: cgroupPath, Position: 1}, true, []string{program}},
		"sk_lookup":      {"looks_up", "sk_lookup", &point{Type: "sk_lookup", Position: 1}, false, []string{program, link}},
		"kprobe":         {"on_kprobe", "kprobe", &point{Type: "kprobe", Target: "do_unlinkat"}, false, []string{program, link}},
		"fentry":         {"on_fentry", "tracing", &point{Type: "fentry", Target: "do_unlinkat"}, false, []string{program, link}},
		"long name":      {"a_function_with_a_name_that_the_kernel_cuts", "socket_filter", nil, true, []string{program}},
	} {
		t.Run(what, func(t *testing.T) {
			n, at := inspect(t), place(t)
			var group cgroup
			if strings.HasPrefix(what, "cgroup") {
				group = makeCgroup(t)
			}
			holder := start(t, at, what)
			n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool {
				if !heldBy(p, holder.command.Process.Pid, want.holds...) || p.Name != want.name || p.Type != want.kind || p.LoadedByUID == nil || *p.LoadedByUID != 0 || p.LoadedAt == nil || p.Bpfman {
					return false
				}
				if want.point == nil {
					return len(p.AttachPoints) == 0
				}
				return attached(p, !want.unlinked, *want.point)
			})
			holder.end()
			if what == "cgroup" {
				// The cgroup keeps it, and the holder that has ended stays in the
				// status.
				n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool { return p != nil && len(p.Holders) == 1 && p.Holders[0].Gone })
				group.remove(t)
			}
			if what == "xdp native" {
				n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool { return p != nil && len(p.Holders) == 1 && p.Holders[0].Gone })
				if _, err := run(t, at, "ip", "link", "set", near, "xdp", "off"); err != nil {
					t.Fatal(err)
				}
			}
			n.await(holder.Programs[0], gone)
		})
	}
}

// TestChain checks the order of programs in a chain.
func TestChain(t *testing.T) {
	n, at := inspect(t), place(t)
	holder := start(t, at, "tcx")
	for i, id := range holder.Programs {
		n.await(id, func(p *v1alpha1.BpfNodeProgram) bool {
			return attached(p, true, v1alpha1.BpfNodeAttachPoint{Type: "tcx/ingress", Interface: near, Position: int32(i) + 1}) &&
				heldBy(p, holder.command.Process.Pid, "program", "link")
		})
	}
	holder.end()
	for _, id := range holder.Programs {
		n.await(id, gone)
	}
}

// TestInMap checks who has the map that alone keeps a program.
func TestInMap(t *testing.T) {
	n, at := inspect(t), place(t)
	holder := start(t, at, "in map")
	n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool { return heldBy(p, holder.command.Process.Pid, "map") })
	holder.end()
	n.await(holder.Programs[0], gone)
}

// TestHostileNames uses processes whose names contain escape sequences, or aren't text.
func TestHostileNames(t *testing.T) {
	n, at := inspect(t), place(t)
	holder := start(t, at, "hostile")
	n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool {
		return p != nil && len(p.Holders) == 1 && p.Holders[0].Process == `\x1b[31m\xff\u202e\\`
	})
}

// TestPinned ends a process that has pinned a program. The process stays in the status,
// and the pin is found until it is removed.
func TestPinned(t *testing.T) {
	n, at := inspect(t), place(t)
	holder := start(t, at, "pin")
	pid := holder.command.Process.Pid
	const path = pinned + "/below/program"
	n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool {
		return p != nil && len(p.Holders) == 2 && int(p.Holders[0].PID) == pid && !p.Holders[0].Gone && p.Holders[1].Path == path && p.Holders[1].Holds == "program"
	})
	holder.end()
	n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool {
		return p != nil && len(p.Holders) == 2 && int(p.Holders[0].PID) == pid && p.Holders[0].Gone && p.Holders[1].Path == path
	})
	must.Succeed(t, os.Remove(at.Path(path)))
	n.await(holder.Programs[0], gone)
}

// legacy contains how to attach pinned programs with ip(8) and tc(8), which create no
// link and hold nothing.
var legacy = map[string]struct {
	attach, detach [][]string
	point          v1alpha1.BpfNodeAttachPoint
}{
	"pin for xdp": {
		attach: [][]string{{"ip", "link", "set", "dev", far, "xdpgeneric", "pinned", pinned + "-xdp"}},
		detach: [][]string{{"ip", "link", "set", "dev", far, "xdpgeneric", "off"}},
		point:  v1alpha1.BpfNodeAttachPoint{Type: "xdp", Interface: far, Mode: "generic"},
	},
	"pin for tc": {
		attach: [][]string{
			{"tc", "qdisc", "add", "dev", near, "clsact"},
			{"tc", "filter", "add", "dev", near, "egress", "prio", "7", "bpf", "da", "pinned", pinned + "-tc"},
		},
		detach: [][]string{{"tc", "filter", "del", "dev", near, "egress"}},
		point:  v1alpha1.BpfNodeAttachPoint{Type: "tc/egress", Interface: near, Position: 1, Priority: 7},
	},
}

// TestLegacy checks that such programs are found when they are attached, and disappear
// when they are detached.
func TestLegacy(t *testing.T) {
	for what, c := range legacy {
		t.Run(what, func(t *testing.T) {
			n, at := inspect(t), place(t)
			holder := start(t, at, what)
			for _, command := range c.attach {
				if _, err := run(t, at, command[0], command[1:]...); err != nil {
					prerequisite.Missing(t, "this kernel doesn't: "+err.Error(), prerequisiteOf(what))
				}
			}
			holder.end()
			n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool { return attached(p, false, c.point) })
			for _, command := range c.detach {
				if _, err := run(t, at, command[0], command[1:]...); err != nil {
					t.Fatal(err)
				}
			}
			n.await(holder.Programs[0], func(p *v1alpha1.BpfNodeProgram) bool { return p != nil && len(p.AttachPoints) == 0 })
		})
	}
}
