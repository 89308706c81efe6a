// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	inspected "github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/live"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// callTimeout bounds one call of the daemon, also with emulation.
const callTimeout = 3 * time.Minute

// objectDir is the output directory of `make bytecode`.
const objectDir = "../../bin/bytecode"

// ofDaemon is a program that the daemon loads and attaches.
type ofDaemon struct {
	object, function string
	kind             gobpfman.BpfmanProgramType
	attach           *gobpfman.AttachInfo
	point            v1alpha1.BpfNodeAttachPoint
}

// TestDaemon makes the real daemon load, attach, detach, and unload programs, and checks
// their owners and attach points. Dispatchers attach XDP and TC, and also belong to
// bpfman.
func TestDaemon(t *testing.T) {
	for name, c := range map[string]ofDaemon{
		"TCX": {
			"go-tcx-counter", "tcx_stats", gobpfman.BpfmanProgramType_TCX,
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: 50, Iface: "lo", Direction: "ingress"}}},
			v1alpha1.BpfNodeAttachPoint{Type: "tcx/ingress", Interface: "lo", Position: 1},
		},
		"tracepoint": {
			"tracepoint", "enter_openat", gobpfman.BpfmanProgramType_TRACEPOINT,
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: "syscalls/sys_enter_kill"}}},
			v1alpha1.BpfNodeAttachPoint{Type: "tracepoint", Target: "sys_enter_kill"},
		},
		"XDP": {
			"xdp_pass", "pass", gobpfman.BpfmanProgramType_XDP,
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{Priority: 50, Iface: "lo"}}},
			v1alpha1.BpfNodeAttachPoint{Type: "freplace", Interface: "lo", Mode: "generic", Target: "prog0", Position: 1},
		},
		"TC": {
			"tc_pass", "pass", gobpfman.BpfmanProgramType_TC,
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{Priority: 50, Iface: "lo", Direction: "ingress"}}},
			v1alpha1.BpfNodeAttachPoint{Type: "freplace", Interface: "lo", Target: "prog0", Position: 1},
		},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c ofDaemon) run(t *testing.T) {
	t.Helper()
	d := daemontest.Start(t)
	n := inspect(t)
	ask := asking(t, d)

	id := c.load(t, d)
	n.learnOwners(ask)
	owner := v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "apps", Name: "counter"}
	ours := func(p *v1alpha1.BpfNodeProgram) bool {
		return p != nil && p.Bpfman && p.Owner != nil && *p.Owner == owner && slices.ContainsFunc(p.Holders, func(h v1alpha1.BpfNodeHolder) bool {
			return h.Holds == "program" && strings.HasPrefix(h.Path, "/run/bpfman/fs/")
		})
	}
	n.await(id, func(p *v1alpha1.BpfNodeProgram) bool { return ours(p) && len(p.AttachPoints) == 0 })

	link := c.attached(t, d, id)
	dispatcher := uint32(0)
	n.await(id, func(p *v1alpha1.BpfNodeProgram) bool {
		if !ours(p) || len(p.AttachPoints) != 1 {
			return false
		}
		dispatcher = p.AttachPoints[0].TargetProgramID
		bare := *p
		bare.AttachPoints = slices.Clone(p.AttachPoints)
		bare.AttachPoints[0].TargetProgramID = 0
		return attached(&bare, true, c.point)
	})
	if dispatcher != 0 {
		n.await(dispatcher, func(p *v1alpha1.BpfNodeProgram) bool {
			return p != nil && p.Bpfman && p.Owner == nil && len(p.AttachPoints) == 1 && p.AttachPoints[0].Interface == "lo"
		})
	}
	call(t, func(ctx context.Context) error {
		_, err := d.Client.Detach(ctx, &gobpfman.DetachRequest{LinkId: link})
		return err
	})
	n.await(id, func(p *v1alpha1.BpfNodeProgram) bool { return ours(p) && len(p.AttachPoints) == 0 })
	call(t, func(ctx context.Context) error {
		_, err := d.Client.Unload(ctx, &gobpfman.UnloadRequest{Id: id})
		return err
	})
	n.learnOwners(ask)
	n.await(id, gone)
	if dispatcher != 0 {
		n.await(dispatcher, gone)
	}
}

// asking returns the inspector's client of the daemon.
func asking(t *testing.T, d *daemontest.Real) *inspected.Daemon {
	t.Helper()
	asked, err := inspected.New(d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Close() })
	return asked
}

// learnOwners asks for the owners of programs, as the inspector's loop does in each round in which ids have changed.
func (n *node) learnOwners(daemon *inspected.Daemon) {
	n.t.Helper()
	call(n.t, func(ctx context.Context) error {
		answer, err := daemon.Ask(ctx)
		n.owners = answer.Owners
		return err
	})
}

func call(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	must.Succeed(t, f(ctx))
}

// load loads the program like the agent. It skips the test if the kernel refuses it.
func (c ofDaemon) load(t *testing.T, d *daemontest.Real) uint32 {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(objectDir, c.object+".o"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	uuid := "inspector-test"
	loaded, err := d.Client.Load(ctx, &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: file}},
		Uuid:     &uuid,
		Metadata: map[string]string{
			v1alpha1.MetadataUUID: uuid, v1alpha1.MetadataProgramName: "counter",
			v1alpha1.MetadataNamespace: "apps", v1alpha1.MetadataKind: "TcxNsProgram",
		},
		Info: []*gobpfman.LoadInfo{{Name: c.function, ProgramType: c.kind}},
	})
	if err != nil {
		c.refused(t, err)
	}
	return loaded.Programs[0].KernelInfo.Id
}

func (c ofDaemon) attached(t *testing.T, d *daemontest.Real, id uint32) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	response, err := d.Client.Attach(ctx, &gobpfman.AttachRequest{Id: id, Attach: c.attach})
	if err != nil {
		c.refused(t, err)
	}
	return response.LinkId
}

// refused skips the test if the kernel doesn't support what the daemon was asked for,
// and fails it otherwise. Kernels without BPF trampolines don't support dispatchers.
func (c ofDaemon) refused(t *testing.T, err error) {
	t.Helper()
	message := status.Convert(err).Message()
	if strings.Contains(message, "Operation not permitted") || strings.Contains(message, "bpf_link_create") {
		name, typeErr := prerequisite.OfType(c.kind.String())
		if typeErr != nil {
			t.Fatal(typeErr)
		}
		prerequisite.Missing(t, "this kernel doesn't: "+message, name)
	}
	t.Fatal(err)
}

// TestGlobals dumps the global variables of a program of the real daemon, whose loader gives the kernel no types of
// them.
func TestGlobals(t *testing.T) {
	d := daemontest.Start(t)
	c := ofDaemon{object: "kill_statistics", function: "kill_statistics", kind: gobpfman.BpfmanProgramType_TRACEPOINT}
	c.attach = &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: "syscalls/sys_enter_kill"}}}
	id := c.load(t, d)
	c.attached(t, d, id)
	must.Succeed(t, unix.Kill(os.Getpid(), unix.SIGCONT))
	for section, want := range map[string][]string{
		".bss": {
			`{"key":"kills","value":`, `"variable":{"offset":0,"size":8,"type":"u64"}`,
			`{"key":"kills_by_signal","value":[`, `"variable":{"offset":8,"size":32,"type":"u64[4]"}`,
			`{"key":"others","value":`, `"variable":{"offset":40,"size":8,"type":"u64"}`,
			`{"key":"last","value":{"pid":`, `"process":"`, `"variable":{"offset":48,"size":20,"type":"struct last_kill"}`,
		},
		".data":   {`{"key":"limit","value":1000000,"variable":{"offset":0,"size":8,"type":"u64"}}`},
		".rodata": {`{"key":"only_signal","value":0,"variable":{"offset":0,"size":4,"type":"u32"}}`},
	} {
		var out strings.Builder
		must.Succeed(t, live.Dump(t.Context(), live.DumpOptions{Section: section, Programs: []uint32{1 << 31, id}}, nil, &out))
		for _, words := range want {
			if !strings.Contains(out.String(), words) {
				t.Errorf("%s lacks %s:\n%s", section, words, out.String())
			}
		}
	}
	err := live.Dump(t.Context(), live.DumpOptions{Section: ".bss.other", Programs: []uint32{id}}, nil, io.Discard)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), ".bss.other") {
		t.Errorf("a section that doesn't exist: %v", err)
	}
}
