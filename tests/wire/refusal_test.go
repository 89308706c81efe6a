// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package wire

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentdaemon "github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// unknown isn't the id of a program or link.
const unknown = 4_000_000_000

// refused makes a call that must fail with code Aborted, like all failures of the daemon, and
// with a text that contains want.
func (c client) refused(what string, do func() error, want string) {
	c.t.Helper()
	got := status.Convert(do())
	if got.Code() != codes.Aborted || !strings.Contains(got.Message(), want) {
		c.t.Errorf("%s: %s %q, want Aborted with %q", what, got.Code(), got.Message(), want)
	}
	c.t.Logf("%s: %s", what, got.Message())
}

// TestRefusals checks the texts by which the agent distinguishes errors, and that users read.
func TestRefusals(t *testing.T) {
	c := start(t)
	loaded := answer(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_pass")}})
	id := loaded.GetPrograms()[0].GetKernelInfo().GetId()
	owner := uint32(unknown)
	for what, tt := range map[string]struct {
		do   func() error
		want string
	}{
		"Unload, unknown": {func() error { _, err := call(c, c.unload, unknown); return err }, "Program 4000000000 does not exist"},
		"Detach, unknown": {func() error { _, err := call(c, c.detach, unknown); return err }, `does not exist in tree "link_4000000000"`},
		"Attach, unknown": {func() error { _, err := call(c, c.attach, onLoopback(unknown, "ingress")); return err }, "Program 4000000000 does not exist"},
		"Get, unknown":    {func() error { _, err := call(c, c.get, unknown); return err }, "Program 4000000000 does not exist"},
		"Load, nothing":   {func() error { _, err := call(c, c.load, &gobpfman.LoadRequest{}); return err }, "missing bytecode info"},
		"Load, a name twice": {func() error {
			_, err := call(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_next"), tcx("tcx_next")}})
			return err
		}, "AlreadyLoaded"},
		"Load, one of two unknown": {func() error {
			_, err := call(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_next"), tcx("absent")}})
			return err
		}, "absent"},
		"Load, map owner unknown": {func() error {
			_, err := call(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), MapOwnerId: &owner, Info: []*gobpfman.LoadInfo{tcx("tcx_next")}})
			return err
		}, "map_owner_id does not exist"},
		"Attach, no interface": {func() error {
			r := onLoopback(id, "ingress")
			r.GetAttach().GetTcxAttachInfo().Iface = "absent"
			_, err := call(c, c.attach, r)
			return err
		}, "Invalid Interface"},
		"Attach, direction": {func() error { _, err := call(c, c.attach, onLoopback(id, "sideways")); return err }, "sideways"},
		"Attach, no place":  {func() error { _, err := call(c, c.attach, &gobpfman.AttachRequest{Id: id}); return err }, "missing attach_info"},
	} {
		t.Run(what, func(t *testing.T) {
			client{c.Real, t}.refused(what, tt.do, tt.want)
		})
	}
	// None of them left or removed anything, or affected the daemon.
	c.holds(loaded.GetPrograms()[0])
	if ids := c.ids(&gobpfman.ListRequest{BpfmanProgramsOnly: new(true)}); len(ids) != 1 {
		t.Errorf("programs %v are loaded, want %d alone", ids, id)
	}
	link := answer(c, c.attach, onLoopback(id, "ingress")).GetLinkId()
	c.holds(loaded.GetPrograms()[0], link)
}

// TestPhantomLink reproduces a fault of the daemon. If the daemon panics during a call, or is
// killed, the link stays in its list, although nothing is attached, and Detach doesn't find it.
// This has to count as detached. The program can still be attached and unloaded.
func TestPhantomLink(t *testing.T) {
	c := start(t)
	loaded := answer(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_pass")}}).GetPrograms()[0]
	id := loaded.GetKernelInfo().GetId()
	c.refused("attach point of another type", func() error {
		_, err := call(c, c.attach, &gobpfman.AttachRequest{Id: id, Attach: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{
			TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: "syscalls/sys_enter_kill"},
		}}})
		return err
	}, "panicked")
	phantoms := answer(c, c.get, id).GetInfo().GetLinks()
	if len(phantoms) != 1 {
		t.Fatalf("links %v, want one: the daemon is mended, and this test is no longer needed", phantoms)
	}
	c.refused("Detach, phantom", func() error { _, err := call(c, c.detach, phantoms[0]); return err }, "does not exist in tree \"link_"+decimal(phantoms[0])+`"`)
	link := answer(c, c.attach, onLoopback(id, "ingress")).GetLinkId()
	c.holds(loaded, phantoms[0], link)
	answer(c, c.unload, id)
	if ids := c.ids(&gobpfman.ListRequest{BpfmanProgramsOnly: new(true)}); len(ids) != 0 {
		t.Errorf("programs %v are left", ids)
	}
}

// TestUnknownLink reproduces what a daemon leaves that is killed during Attach: a link that is
// attached, but isn't in its list. The kernel refuses to attach the program there again, and
// Unload leaves it attached. The agent removes it.
func TestUnknownLink(t *testing.T) {
	c := start(t)
	loaded := answer(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_pass")}}).GetPrograms()[0]
	id := loaded.GetKernelInfo().GetId()
	database, earlier := c.Place.Path("/run/bpfman/db"), filepath.Join(t.TempDir(), "db")
	must.Succeed(t, os.CopyFS(earlier, os.DirFS(database)))
	unknown := answer(c, c.attach, onLoopback(id, "ingress")).GetLinkId()
	replace(t, database, earlier)
	c.holds(loaded)
	attach := func() error { _, err := call(c, c.attach, onLoopback(id, "ingress")); return err }
	c.refused("Attach, attached without the daemon's knowledge", attach, "`bpf_mprog_attach` failed")

	inventory := agentdaemon.NewInventory(c.Client, c.Place.Path("/"))
	if _, err := inventory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.absent(unknown)
	// The kernel frees a link some milliseconds after its last pin is removed.
	var link uint32
	envtest.Eventually(t, "the program is attached again", func(ctx context.Context) error {
		response, err := c.Client.Attach(ctx, onLoopback(id, "ingress"))
		link = response.GetLinkId()
		return err
	})
	c.holds(loaded, link)
	if _, err := inventory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.holds(loaded, link)
	if _, err := os.Stat(c.linkPin(link)); err != nil {
		t.Errorf("the agent removed a link of the daemon's: %v", err)
	}
}

// TestHalfKnownLink reproduces what a daemon can also leave: a link that is attached and in its
// list, but that Detach and Unload don't find. The agent removes it with both.
func TestHalfKnownLink(t *testing.T) {
	for name, remove := range map[string]func(*agentdaemon.Inventory, uint32, uint32) error{
		"Detach": func(i *agentdaemon.Inventory, id, link uint32) error { return i.Detach(t.Context(), id, link) },
		"Unload": func(i *agentdaemon.Inventory, id, _ uint32) error { return i.Unload(t.Context(), id) },
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			request := &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_pass")}}
			request.Metadata = map[string]string{v1alpha1.MetadataUUID: "u", v1alpha1.MetadataKind: "TcxProgram", v1alpha1.MetadataProgramName: "p"}
			id := answer(c, c.load, request).GetPrograms()[0].GetKernelInfo().GetId()
			c.refused("attach point of another type", func() error {
				_, err := call(c, c.attach, &gobpfman.AttachRequest{Id: id, Attach: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{
					TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: "syscalls/sys_enter_kill"},
				}}})
				return err
			}, "panicked")
			half := answer(c, c.get, id).GetInfo().GetLinks()[0]
			link := answer(c, c.attach, onLoopback(id, "ingress")).GetLinkId()
			must.Succeed(t, os.Link(c.linkPin(link), c.linkPin(half)))
			answer(c, c.detach, link)
			attach := func() error { _, err := call(c, c.attach, onLoopback(id, "ingress")); return err }
			c.refused("Attach, attached without the daemon's knowledge", attach, "`bpf_mprog_attach` failed")

			inventory := agentdaemon.NewInventory(c.Client, c.Place.Path("/"))
			if _, err := inventory.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, remove(inventory, id, half))
			c.absent(half)
		})
	}
}

func (c client) linkPin(link uint32) string {
	return c.Place.Path("/run/bpfman/fs/links/" + decimal(link))
}

// absent checks that a link isn't pinned, so that it is detached.
func (c client) absent(link uint32) {
	c.t.Helper()
	if _, err := os.Stat(c.linkPin(link)); !os.IsNotExist(err) {
		c.t.Errorf("link %d is still pinned: %v", link, err)
	}
}

// replace replaces the files of the daemon's database, which it opens for each call.
func replace(t *testing.T, dir, with string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		must.Succeed(t, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	must.Succeed(t, os.CopyFS(dir, os.DirFS(with)))
	created := time.Now().Add(-time.Hour)
	must.Succeed(t, os.Chtimes(filepath.Join(dir, "conf"), created, created))
}

// TestUnfinishedSnapshot reproduces another fault of the daemon. If the daemon is killed, or
// its disk is full, while it writes a snapshot of its database, it can no longer open the
// database, and refuses every call. The agent removes the snapshot, and nothing is lost.
func TestUnfinishedSnapshot(t *testing.T) {
	c := start(t)
	loaded := answer(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("tcx_test"), Info: []*gobpfman.LoadInfo{tcx("tcx_pass")}}).GetPrograms()[0]
	snapshot := c.Place.Path("/run/bpfman/db/snap.FFFFFFFFFFFFFFFF.generating")
	must.Succeed(t, os.WriteFile(snapshot, nil, 0o600))
	long := time.Now().Add(-time.Hour)
	must.Succeed(t, os.Chtimes(snapshot, long, long))
	list := func() error { _, err := call(c, c.list, &gobpfman.ListRequest{}); return err }
	c.refused("List, a snapshot is unfinished", list, "Failed to acquire database lock")
	if _, err := agentdaemon.NewInventory(c.Client, c.Place.Path("/")).Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.holds(loaded)
}

// With the configuration that the operator deploys, the daemon tries to open its database for minutes, instead of refusing
// the call.
func TestUnfinishedSnapshotAsDeployed(t *testing.T) {
	place := daemontest.NewPlace(t)
	must.Succeed(t, os.WriteFile(place.Path("/etc/bpfman/bpfman.toml"), []byte(deployed(t).Daemon.TOML), 0o600))
	d := place.Start(t, daemontest.Binary(t))
	snapshot := place.Path("/run/bpfman/db/snap.FFFFFFFFFFFFFFFF.generating")
	must.Succeed(t, os.WriteFile(snapshot, nil, 0o600))
	long := time.Now().Add(-time.Hour)
	must.Succeed(t, os.Chtimes(snapshot, long, long))
	if _, err := agentdaemon.NewInventory(d.Client, place.Path("/")).Refresh(t.Context()); err != nil {
		t.Error(err)
	}
}

// deployed returns the default configuration.
func deployed(t *testing.T) deploy.Config {
	t.Helper()
	config, _, err := deploy.ParseConfig(map[string]string{
		deploy.KeyDaemonImage: "a", deploy.KeyAgentImage: "a", deploy.KeyCSIImage: "a", deploy.KeyInspectorImage: "a",
	})
	must.Succeed(t, err)
	return config
}

// loadForeign loads a program without the daemon until the test ends, and returns its id.
func loadForeign(t *testing.T) uint32 {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, ok := info.ID()
	if !ok {
		t.Fatal("the kernel gives programs no ids")
	}
	return uint32(id)
}

func decimal(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
