// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package contract tests what the agent, the CSI plugin, and the inspector rely on with each daemon that a node can run: the
// one that BPFMAN_RPC names, and the daemons in memory, which answer as the real ones do.
package contract

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	csi "github.com/bpfman/bpfman-operator/csi/program"
	inspector "github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	objectDir = "../../bin/bytecode" // of `make bytecode`
	mapsDir   = "/run/bpfman/fs/maps"
)

var owner = program.Key{Kind: "ClusterBpfApplication", Name: "measured"}

// node is a node with a daemon.
type node struct {
	t      *testing.T
	client gobpfman.BpfmanClient
	socket string
	root   string
	// real is nil if the daemon is one in memory.
	real *daemontest.Real
}

// onEach runs a test with each daemon.
func onEach(t *testing.T, test func(*node)) {
	t.Helper()
	for name, start := range map[string]func(string) *daemontest.Daemon{"in memory, as in Rust": daemontest.New, "in memory, as in Go": daemontest.NewGo} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d := start(root)
			socket := filepath.Join(t.TempDir(), "bpfman.sock")
			d.Serve(t, socket)
			test(&node{t: t, client: d, socket: socket, root: root})
		})
	}
	t.Run("real", func(t *testing.T) { test(startReal(t)) })
}

func startReal(t *testing.T) *node {
	t.Helper()
	if objects, _ := filepath.Glob(filepath.Join(objectDir, "*.o")); len(objects) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	d := daemontest.Start(t)
	return &node{t: t, client: d.Client, socket: d.Socket, root: d.Place.Path("/"), real: d}
}

// inventory returns what an agent knows that starts now.
func (n *node) inventory() *daemon.Inventory {
	n.t.Helper()
	i := daemon.NewInventory(n.client, n.root)
	if _, err := i.Refresh(n.t.Context()); err != nil || !i.Known() {
		n.t.Fatalf("%v, known: %v", err, i.Known())
	}
	return i
}

// request returns a Load of functions of an object. A function's type is that of its name's prefix.
func request(t *testing.T, object string, functions ...*gobpfman.LoadInfo) *gobpfman.LoadRequest {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(objectDir, object+".o"))
	must.Succeed(t, err)
	return &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: path}}, Uuid: new("uid"), Info: functions,
		Metadata: map[string]string{
			v1alpha1.MetadataUUID: "uid", v1alpha1.MetadataKind: owner.Kind, v1alpha1.MetadataProgramName: owner.Name, v1alpha1.MetadataLoad: "hash",
		},
	}
}

func tcx(function string) *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: function, ProgramType: gobpfman.BpfmanProgramType_TCX}
}

func uprobe(function string) *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: function, ProgramType: gobpfman.BpfmanProgramType_UPROBE}
}

// onLoopback is an attach point on the daemon's own loopback interface.
func onLoopback(direction string) program.AttachPoint {
	return program.AttachPoint{Name: "lo " + direction, Digest: direction, Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{
		TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: 50, Iface: "lo", Direction: direction},
	}}}
}

func byFunction(programs []daemon.Program) map[string]daemon.Program {
	found := map[string]daemon.Program{}
	for _, p := range programs {
		found[p.Function] = p
	}
	return found
}

// unlinked returns programs without what only the agent that attached them knows.
func unlinked(programs []daemon.Program) []daemon.Program {
	for n := range programs {
		for id := range programs[n].Links {
			programs[n].Links[id] = daemon.Link{}
		}
	}
	return programs
}

func TestRecognized(t *testing.T) {
	onEach(t, func(n *node) {
		if got := n.inventory().Daemon(); got != bpfman.Rust && got != bpfman.Go {
			n.t.Errorf("%q", got)
		}
	})
}

// What Load returns is what an agent finds that starts later, with the same links.
func TestAgentsFindTheirPrograms(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		must.Succeed(t, i.Load(t.Context(), request(t, "go-app-counter", tcx("tcx_stats"), uprobe("uprobe_counter"))))
		loaded := byFunction(i.Of(owner))
		p := loaded["tcx_stats"]
		if len(loaded) != 2 || p.OwnerUID != "uid" || p.LoadID != "hash" || p.ID == 0 || p.LoadedAt == "" || p.Tag == "" || len(p.Maps) == 0 || p.MapOwnerID != nil || len(p.MapUsedBy) > 0 {
			t.Fatalf("loaded %+v", loaded)
		}
		for name, path := range p.Maps {
			if _, err := os.Stat(filepath.Join(n.root, path)); err != nil {
				t.Errorf("map %s: %v", name, err)
			}
		}
		must.Succeed(t, i.Attach(t.Context(), p.ID, onLoopback("ingress")))
		must.Succeed(t, i.Attach(t.Context(), p.ID, onLoopback("egress")))
		if diff := cmp.Diff(unlinked(i.Of(owner)), n.inventory().Of(owner)); diff != "" {
			t.Errorf("a later agent finds: %s", diff)
		}
		if changed, err := i.Refresh(t.Context()); err != nil || len(changed) > 0 {
			t.Errorf("what the agent did changed for it: %v, %v", changed, err)
		}
	})
}

// The functions of one Load share their maps. Those of another Load have others.
func TestFunctionsOfALoadShareMaps(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		for range 2 {
			must.Succeed(t, i.Load(t.Context(), request(t, "latency", uprobe("called"), uprobe("returned"))))
		}
		of := i.Of(owner)
		if len(of) != 4 {
			t.Fatalf("loaded %+v", of)
		}
		shared := func(a, b daemon.Program) bool {
			return slices.ContainsFunc(a.MapIDs, func(id uint32) bool { return slices.Contains(b.MapIDs, id) })
		}
		for _, later := range [][]daemon.Program{of, n.inventory().Of(owner)} {
			if !shared(later[0], later[1]) || !shared(later[2], later[3]) || shared(later[0], later[2]) {
				t.Errorf("maps %v, %v, %v, %v", later[0].MapIDs, later[1].MapIDs, later[2].MapIDs, later[3].MapIDs)
			}
			for _, p := range later {
				if p.MapOwnerID != nil || len(p.MapUsedBy) > 0 {
					t.Errorf("%s has map owner %v and users of maps %v", p.Function, p.MapOwnerID, p.MapUsedBy)
				}
			}
		}
	})
}

// A program that uses a map owner has that map owner, even if the owner is a later function of a Load. Both have each
// other as users, until one is unloaded.
func TestMapOwner(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		must.Succeed(t, i.Load(t.Context(), request(t, "go-app-counter", uprobe("uprobe_counter"), tcx("tcx_stats"))))
		shares := byFunction(i.Of(owner))["tcx_stats"].ID
		user := program.Key{Kind: owner.Kind, Name: "user"}
		r := request(t, "go-app-counter", tcx("tcx_stats"))
		r.MapOwnerId, r.Metadata[v1alpha1.MetadataProgramName] = &shares, user.Name
		must.Succeed(t, i.Load(t.Context(), r))
		for _, agent := range []*daemon.Inventory{i, n.inventory()} {
			got := agent.Of(user)
			if len(got) != 1 || got[0].MapOwnerID == nil || *got[0].MapOwnerID != shares || len(got[0].MapUsedBy) == 0 || len(got[0].Maps) == 0 {
				t.Errorf("the user is %+v", got)
			}
		}
		if changed, err := i.Refresh(t.Context()); err != nil || len(changed) > 0 {
			t.Errorf("changed %v, %v", changed, err)
		}
		for _, p := range i.Of(owner) {
			must.Succeed(t, i.Unload(t.Context(), p.ID))
		}
		if got := n.inventory().Of(user); len(got) != 1 || len(got[0].MapUsedBy) > 0 || len(got[0].Maps) == 0 {
			t.Errorf("without the owner, the user is %+v", got)
		}
	})
}

// Detach and Unload remove what they name, and succeed if it is gone.
func TestRemovals(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		must.Succeed(t, i.Load(t.Context(), request(t, "go-app-counter", tcx("tcx_stats"), uprobe("uprobe_counter"))))
		id := byFunction(i.Of(owner))["tcx_stats"].ID
		must.Succeed(t, i.Attach(t.Context(), id, onLoopback("ingress")))
		must.Succeed(t, i.Attach(t.Context(), id, onLoopback("egress")))
		var ingress uint32
		for link, at := range byFunction(i.Of(owner))["tcx_stats"].Links {
			if at.Point == "lo ingress" {
				ingress = link
			}
		}
		for range 2 {
			must.Succeed(t, i.Detach(t.Context(), id, ingress))
		}
		links := byFunction(n.inventory().Of(owner))["tcx_stats"].Links
		if _, there := links[ingress]; there || len(links) != 1 {
			t.Errorf("links %v after %d was detached", links, ingress)
		}
		for range 2 {
			must.Succeed(t, i.Unload(t.Context(), id))
		}
		if got := n.inventory().Of(owner); len(got) != 1 || got[0].Function != "uprobe_counter" {
			t.Errorf("left %+v", got)
		}
		must.Succeed(t, i.Unload(t.Context(), i.Of(owner)[0].ID))
		for _, pattern := range []string{"prog_*", "maps/*", "links/*", "tcx-*/link_*"} {
			if left, _ := filepath.Glob(filepath.Join(n.root, "/run/bpfman/fs", pattern)); n.real != nil && len(left) > 0 {
				t.Errorf("pins are left: %q", left)
			}
		}
	})
}

// A refusal changes nothing, and its text is the same each time.
func TestRefusals(t *testing.T) {
	n := startReal(t)
	i := n.inventory()
	must.Succeed(t, i.Load(t.Context(), request(t, "tcx_test", tcx("tcx_pass"))))
	id := i.Of(owner)[0].ID
	other := program.Key{Kind: owner.Kind, Name: "other"}
	loads := 0
	load := func(object string, change func(*gobpfman.LoadRequest), functions ...*gobpfman.LoadInfo) func(context.Context) error {
		loads++
		r := request(t, object, functions...)
		r.Metadata[v1alpha1.MetadataProgramName], r.Metadata[v1alpha1.MetadataLoad] = other.Name, strconv.Itoa(loads)
		if change != nil {
			change(r)
		}
		return func(ctx context.Context) error { return i.Load(ctx, r) }
	}
	noInterface := onLoopback("ingress")
	noInterface.Info.GetTcxAttachInfo().Iface = "absent"
	for name, c := range map[string]struct {
		do        func(context.Context) error
		permanent bool
		want      string
	}{
		"no such function": {load("tcx_test", nil, tcx("tcx_next"), tcx("absent")), true, "absent"},
		"a function twice": {load("tcx_test", nil, tcx("tcx_next"), tcx("tcx_next")), false, ""},
		"another type":     {load("tcx_test", nil, &gobpfman.LoadInfo{Name: "tcx_next", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}), true, ""},
		"several globals are wrong": {load("globals", func(r *gobpfman.LoadRequest) {
			r.GlobalData = map[string][]byte{"A": {1}, "B": {1}, "C": {1}, "D": {1}}
		}, &gobpfman.LoadInfo{Name: "show_globals", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}), true, "not found"},
		"the size of a global":      {load("tcx_test", func(r *gobpfman.LoadRequest) { r.GlobalData = map[string][]byte{"GLOBAL_u8": {1, 2, 3}} }, tcx("tcx_next")), true, "GLOBAL_u8"},
		"the verifier":              {load("rejected", nil, tcx("rejected")), true, ""},
		"no file":                   {load("absent", nil, tcx("f")), false, ""},
		"no such map owner":         {load("tcx_test", func(r *gobpfman.LoadRequest) { r.MapOwnerId = new(uint32(4_000_000_000)) }, tcx("tcx_next")), false, "map_owner_id"},
		"attach, no interface":      {func(ctx context.Context) error { return i.Attach(ctx, id, noInterface) }, false, ""},
		"attach, no such program":   {func(ctx context.Context) error { return i.Attach(ctx, 4_000_000_000, onLoopback("ingress")) }, false, "4000000000"},
		"attach, no such direction": {func(ctx context.Context) error { return i.Attach(ctx, id, onLoopback("sideways")) }, false, "sideways"},
		"attach, the same place again": {func(ctx context.Context) error {
			return errors.Join(i.Attach(ctx, id, onLoopback("egress")), i.Attach(ctx, id, onLoopback("egress")))
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var first string
			for try := range 5 {
				err := c.do(t.Context())
				failed := (*daemon.Error)(nil)
				if !errors.As(err, &failed) || !failed.Refused() || c.permanent && !failed.Permanent() || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v, want a refusal with %q, permanent %v", err, c.want, c.permanent)
				}
				if try == 0 {
					first = err.Error()
					t.Log(first)
				}
				if name != "attach, the same place again" && err.Error() != first {
					t.Errorf("%s, then %s", first, err)
				}
				if !i.Known() {
					t.Error("the refusal made the inventory unknown")
				}
			}
			if left := n.inventory().Of(other); len(left) > 0 {
				t.Errorf("left %+v", left)
			}
		})
	}
}

// Programs, their links, and their load times stay when the daemon is killed and starts again.
func TestDaemonStartsAgain(t *testing.T) {
	n := startReal(t)
	i := n.inventory()
	must.Succeed(t, i.Load(t.Context(), request(t, "latency", uprobe("called"), uprobe("returned"))))
	must.Succeed(t, i.Load(t.Context(), request(t, "tcx_test", tcx("tcx_pass"))))
	must.Succeed(t, i.Attach(t.Context(), byFunction(i.Of(owner))["tcx_pass"].ID, onLoopback("ingress")))
	before := unlinked(i.Of(owner))
	n.real.Kill()
	again := n.real.Place.Start(t, daemontest.Binary(t))
	n.client, n.real = again.Client, again
	if diff := cmp.Diff(before, n.inventory().Of(owner)); diff != "" {
		t.Error(diff)
	}
}

// The CSI plugin and the inspector find the programs of an object.
func TestReaders(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		must.Succeed(t, i.Load(t.Context(), request(t, "go-app-counter", tcx("tcx_stats"), uprobe("uprobe_counter"))))
		plugin, err := csi.NewDaemon(n.socket, filepath.Join(n.root, mapsDir))
		must.Succeed(t, err)
		defer plugin.Close()
		found, err := plugin.Find(t.Context(), csi.Query{Name: owner.Name, Kind: owner.Kind}, time.Now())
		must.Succeed(t, err)
		if len(found) != 2 || found[0].ID <= found[1].ID || !strings.HasPrefix(found[0].Pins, mapsDir+"/") {
			t.Errorf("the CSI plugin finds %+v", found)
		}
		reader, err := inspector.New(n.socket)
		must.Succeed(t, err)
		defer reader.Close()
		answer, err := reader.Ask(t.Context())
		must.Succeed(t, err)
		if answer.Name != string(i.Daemon()) {
			t.Errorf("the inspector recognizes %q, and the agent %q", answer.Name, i.Daemon())
		}
		want := &v1alpha1.BpfNodeOwner{Kind: owner.Kind, Name: owner.Name}
		for _, p := range i.Of(owner) {
			if diff := cmp.Diff(want, answer.Owners[p.ID]); diff != "" {
				t.Errorf("the inspector finds for program %d: %s", p.ID, diff)
			}
		}
	})
}

// A function that returns from another one is attached to the return, if its Load says so.
func TestReturnProbes(t *testing.T) {
	n := startReal(t)
	i := n.inventory()
	r := request(t, "latency", uprobe("called"), uprobe("returned"))
	r.Metadata[v1alpha1.MetadataActualType+"returned"] = "uretprobe"
	must.Succeed(t, i.Load(t.Context(), r))
	at := program.AttachPoint{Name: "getlogin_r", Digest: "getlogin_r", Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{
		UprobeAttachInfo: &gobpfman.UprobeAttachInfo{FnName: new("getlogin_r"), Target: "libc"},
	}}}
	loaded := byFunction(i.Of(owner))
	for function, want := range map[string]string{"called": "uprobe", "returned": "uretprobe"} {
		must.Succeed(t, i.Attach(t.Context(), loaded[function].ID, at))
		if got := attachedAs(t, loaded[function].ID); got != want {
			t.Errorf("%s is attached as %q, want %s", function, got, want)
		}
	}
}

// attachedAs returns how a program is attached in the kernel, or "".
func attachedAs(t *testing.T, id uint32) string {
	t.Helper()
	ids, err := kernel.List()
	must.Succeed(t, err)
	links := &kernel.Links{}
	for _, l := range ids.Links {
		if read, err := links.Read(l); err == nil && read.Program == id { // others' links are created and deleted
			return read.Type
		}
	}
	return ""
}

// A daemon that can't load or attach anything is silent for the probe, although it may still list programs.
func TestHang(t *testing.T) {
	n := startReal(t)
	answers := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return bpfman.Ask(ctx, n.client)
	}
	must.Succeed(t, answers(bpfman.MaxSilence))
	i := n.inventory()
	if i.Daemon() != bpfman.Go {
		return // it has no such lock; tests/wire stops its process
	}
	lock, err := os.OpenFile(filepath.Join(n.root, "/run/bpfman/.lock"), os.O_RDWR, 0)
	must.Succeed(t, err)
	defer lock.Close()
	must.Succeed(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	if _, err := n.client.List(t.Context(), &gobpfman.ListRequest{}); err != nil {
		t.Errorf("list: %v", err)
	}
	if answers(time.Second) == nil {
		t.Error("a daemon that can't take its lock answered")
	}
	must.Succeed(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	must.Succeed(t, answers(bpfman.MaxSilence))
}

// No namespaced object can have the daemon wait for a named pipe in a container.
func TestNamedPipes(t *testing.T) {
	n := startReal(t)
	i := n.inventory()
	if i.Daemon() != bpfman.Go {
		return // its helper, bpfman-ns, opens the target
	}
	tenant := program.Key{Kind: "UprobeNsProgram", Namespace: "acme", Name: "pipe"}
	r := request(t, "latency", uprobe("called"))
	r.Metadata[v1alpha1.MetadataKind], r.Metadata[v1alpha1.MetadataNamespace], r.Metadata[v1alpha1.MetadataProgramName] = tenant.Kind, tenant.Namespace, tenant.Name
	must.Succeed(t, i.Load(t.Context(), r))
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, unix.Mkfifo(pipe, 0o600))
	pid := int32(os.Getpid())
	err := i.Attach(t.Context(), i.Of(tenant)[0].ID, program.AttachPoint{Name: "pipe", Digest: "pipe", Info: &gobpfman.AttachInfo{
		Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: &gobpfman.UprobeAttachInfo{FnName: new("f"), Target: pipe, ContainerPid: &pid}},
	}})
	if failed := (*daemon.Error)(nil); !errors.As(err, &failed) || !failed.Refused() {
		t.Errorf("%v, want a refusal", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	must.Succeed(t, bpfman.Ask(ctx, n.client))
}
