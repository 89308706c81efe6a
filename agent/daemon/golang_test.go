// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Literal statuses of the daemon in Go, and what they are for the agent.
func TestRefusalsOfGo(t *testing.T) {
	for name, c := range map[string]struct {
		code codes.Code
		text string
		want codes.Code
	}{
		"the verifier": {
			codes.Internal, `failed to load programs: load program f: failed to load collection: program f: load program: permission denied: invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0): R1 offset is outside of the packet (5 line(s) omitted)`,
			codes.FailedPrecondition,
		},
		"not allowed":         {codes.Internal, `failed to load programs: load program f: failed to load collection: map m: map create: operation not permitted (MEMLOCK may be too low, consider rlimit.RemoveMemlock)`, codes.FailedPrecondition},
		"no function":         {codes.Internal, `failed to load programs: program(s) not found in object file: [absent]; available programs: [f g]`, codes.FailedPrecondition},
		"no global variable":  {codes.Internal, `failed to load programs: load program f: global variable "A" not found in program; available: [B]`, codes.FailedPrecondition},
		"another shape":       {codes.Internal, `failed to load programs: load program f: failed to load collection: using replacement map X: ValueSize: 96 changed to 104: map spec is incompatible with existing map`, codes.FailedPrecondition},
		"another type":        {codes.Internal, `failed to load programs: load program f: program type mismatch: caller specified tracepoint but ELF section "classifier" implies tc`, codes.FailedPrecondition},
		"no memory":           {codes.Internal, `failed to load programs: load program f: failed to load collection: map m: map create: cannot allocate memory`, codes.Aborted},
		"no file":             {codes.Internal, `failed to load programs: object file /x.o: stat /x.o: no such file or directory`, codes.Aborted},
		"attached already":    {codes.Internal, `attach TCX: program 7 is already attached to lo egress as link 1; detach it first`, codes.Aborted},
		"no interface":        {codes.InvalidArgument, `attach TCX: resolve interface "absent" in netns "": interface not found`, codes.FailedPrecondition},
		"another type's hook": {codes.FailedPrecondition, `program 7 is a tcx program; the tracepoint attach accepts tracepoint`, codes.FailedPrecondition},
		"not implemented":     {codes.Unimplemented, `attach type <nil> not yet implemented`, codes.FailedPrecondition},
		"no program":          {codes.NotFound, `program with ID 7 not found`, codes.NotFound},
		"no answer":           {codes.DeadlineExceeded, `context deadline exceeded`, codes.DeadlineExceeded},
		"no connection":       {codes.Unavailable, `connection refused`, codes.Unavailable},
		"too large":           {codes.ResourceExhausted, `grpc: received message larger than max`, codes.ResourceExhausted},
	} {
		got := newGolang().refusal(status.Error(c.code, c.text))
		if status.Code(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
		if again := newGolang().refusal(got); again.Error() != got.Error() {
			t.Errorf("%s: %v becomes %v", name, got, again)
		}
	}
}

// If a function can't be loaded, none of its Load stays. If it is unknown what stays, the list says.
func TestLoadsOfGoAreLoadedOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		unload error
		known  bool
		left   int
	}{
		"the others are unloaded":       {nil, true, 0},
		"the others can't be unloaded":  {status.Error(codes.Internal, "busy"), false, 1},
		"the daemon is gone in between": {status.Error(codes.Unavailable, "no socket"), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.NewGo(t.TempDir())
			i := known(t, d, d.Root)
			loads := 0
			d.Fault = func(call string, _ proto.Message, done bool) error {
				if call == "Load" && !done {
					if loads++; loads == 2 {
						return status.Error(codes.Internal, "failed to load programs: program(s) not found in object file: [g]")
					}
				}
				if call == "Unload" {
					return c.unload
				}
				return nil
			}
			err := i.Load(t.Context(), request(owner, "f", "g"))
			if err == nil || !strings.Contains(err.Error(), "not found in object file: [g]") || i.Known() != c.known {
				t.Errorf("%v, known: %t", err, i.Known())
			}
			if got := known(t, d, d.Root).Of(owner); len(got) != c.left {
				t.Errorf("left %+v", got)
			}
		})
	}
}

// shifted is a daemon on a node whose clock was set.
type shifted struct {
	*daemontest.Daemon
	by string
}

func (d *shifted) List(ctx context.Context, in *gobpfman.ListRequest, o ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	list, err := d.Daemon.List(ctx, in, o...)
	for _, r := range list.GetResults() {
		r.KernelInfo.LoadedAt = strings.Replace(r.GetKernelInfo().GetLoadedAt(), "00:00:00", d.by, 1)
	}
	return list, err
}

// The load time that the daemon in Go reports moves when the clock is set. The programs are the same, with their links.
func TestLoadTimesOfGoStay(t *testing.T) {
	d := &shifted{Daemon: daemontest.NewGo(t.TempDir()), by: "00:00:00"}
	i := known(t, d, d.Root)
	before := load(t, i, owner, "lo ingress")
	d.by = "09:30:00"
	if changed := refresh(t, i); len(changed) > 0 {
		t.Errorf("changed: %v", changed)
	}
	if after := i.Of(owner)[0]; after.LoadedAt != before.LoadedAt || len(after.Links) != 1 || slices.Max(slices.Collect(linkPoints(after))) != "lo ingress" {
		t.Errorf("%+v, want %+v", after, before)
	}
	if lost := i.TakeLost(owner); lost != (Losses{}) {
		t.Errorf("lost %+v", lost)
	}
}

// An agent that starts later knows the links of a program whose load time has moved by a few seconds. If it has moved by more,
// it can be another program.
func TestLoadTimesOfGoBetweenAgents(t *testing.T) {
	for by, want := range map[string]string{"00:00:05": "lo ingress", "00:00:06": ""} {
		d := &shifted{Daemon: daemontest.NewGo(t.TempDir()), by: "00:00:00"}
		before := load(t, known(t, d, d.Root), owner, "lo ingress")
		d.by = by
		later := known(t, d, d.Root)
		later.Restore(before.ID, before.LoadedAt, before.Links)
		if got := slices.Collect(linkPoints(later.Of(owner)[0])); !slices.Equal(got, []string{want}) {
			t.Errorf("moved by %s: links at %q, want %q", by, got, want)
		}
	}
}

func linkPoints(p Program) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, l := range p.Links {
			if !yield(l.Point) {
				return
			}
		}
	}
}

// A program that is unloaded between List and Get isn't listed. If Get fails for another reason, such as a database that is in
// use, the program runs on, and what it has pinned isn't a leftover.
func TestProgramsOfGoThatVanish(t *testing.T) {
	for code, vanished := range map[codes.Code]bool{codes.NotFound: true, codes.Internal: false, codes.Unavailable: false} {
		synctest.Test(t, func(t *testing.T) {
			d := daemontest.NewGo(t.TempDir())
			writeFile(t, filepath.Join(d.Root, newGolang().database()))
			i := known(t, d, d.Root)
			pin := i.programPin(load(t, i, owner).ID)
			writeFile(t, pin)
			d.Fault = func(call string, _ proto.Message, _ bool) error {
				if call == "Get" {
					return status.Error(code, "database is locked")
				}
				return nil
			}
			_, err := i.Refresh(t.Context())
			<-time.After(othersLoad)
			_, again := i.Refresh(t.Context())
			_, missing := os.Lstat(pin)
			if (err == nil) != vanished || (again == nil) != vanished || (len(i.Of(owner)) == 0) != vanished || (missing != nil) != vanished {
				t.Errorf("%s: %v, %v, %v, %v", code, err, again, i.Of(owner), missing)
			}
		})
	}
}

// A uprobe of a namespaced object in a container isn't asked of a daemon that would open its target itself.
func TestGoGetsNoTargetsOfTenants(t *testing.T) {
	d := daemontest.NewGo(t.TempDir())
	i := known(t, d, d.Root)
	at := func(pid *int32) program.AttachPoint {
		return program.AttachPoint{Name: "f", Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{
			UprobeAttachInfo: &gobpfman.UprobeAttachInfo{Target: "/bin/f", ContainerPid: pid},
		}}}
	}
	tenants, cluster := load(t, i, other), load(t, i, owner)
	d.Calls()
	err := i.Attach(t.Context(), tenants.ID, at(new(int32(7))))
	if err == nil || !strings.Contains(err.Error(), "with the daemon in Go, namespaced uprobes aren't attached") || len(d.Calls()) != 0 || !i.Known() {
		t.Errorf("%v", err)
	}
	for _, pid := range []*int32{nil, new(int32(7))} {
		if err := i.Attach(t.Context(), cluster.ID, at(pid)); err != nil {
			t.Error(err)
		}
	}
}
