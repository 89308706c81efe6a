// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package wire tests the generated client, and the behavior of the real daemon that the
// agent and the CSI plugin rely on. If the daemon's behavior changes, these tests fail
// before a cluster does.
package wire

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const callTimeout = time.Minute

// objectDir is the output directory of `make bytecode`.
const objectDir = "../../bin/bytecode"

// The kernel's numbers for program types, for the filter of List.
const (
	schedCls   = 3
	tracepoint = 5
)

// client calls the daemon with a deadline. If a call that must succeed fails, it ends the
// test.
type client struct {
	*daemontest.Real
	t *testing.T
}

func start(t *testing.T) client {
	t.Helper()
	if objects, _ := filepath.Glob(filepath.Join(objectDir, "*.o")); len(objects) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return client{daemontest.Start(t), t}
}

// call makes one call with a deadline.
func call[Q, R any](c client, rpc func(context.Context, Q) (R, error), request Q) (R, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), callTimeout)
	defer cancel()
	return rpc(ctx, request)
}

// answer makes one call that must succeed.
func answer[Q, R any](c client, rpc func(context.Context, Q) (R, error), request Q) R {
	c.t.Helper()
	response, err := call(c, rpc, request)
	if err != nil {
		c.t.Fatal(err)
	}
	return response
}

func (c client) load(ctx context.Context, r *gobpfman.LoadRequest) (*gobpfman.LoadResponse, error) {
	return c.Client.Load(ctx, r)
}

func (c client) unload(ctx context.Context, id uint32) (*gobpfman.UnloadResponse, error) {
	return c.Client.Unload(ctx, &gobpfman.UnloadRequest{Id: id})
}

func (c client) attach(ctx context.Context, r *gobpfman.AttachRequest) (*gobpfman.AttachResponse, error) {
	return c.Client.Attach(ctx, r)
}

func (c client) detach(ctx context.Context, link uint32) (*gobpfman.DetachResponse, error) {
	return c.Client.Detach(ctx, &gobpfman.DetachRequest{LinkId: link})
}

func (c client) get(ctx context.Context, id uint32) (*gobpfman.GetResponse, error) {
	return c.Client.Get(ctx, &gobpfman.GetRequest{Id: id})
}

func (c client) list(ctx context.Context, r *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
	return c.Client.List(ctx, r)
}

// ids returns the ids of the programs that match a filter.
func (c client) ids(r *gobpfman.ListRequest) []uint32 {
	c.t.Helper()
	var ids []uint32
	for _, result := range answer(c, c.list, r).GetResults() {
		ids = append(ids, result.GetKernelInfo().GetId())
	}
	slices.Sort(ids)
	return ids
}

// object returns the location of bytecode in a file.
func (c client) object(name string) *gobpfman.BytecodeLocation {
	c.t.Helper()
	path, err := filepath.Abs(filepath.Join(objectDir, name+".o"))
	if err != nil {
		c.t.Fatal(err)
	}
	return &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: path}}
}

func tcx(function string) *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: function, ProgramType: gobpfman.BpfmanProgramType_TCX}
}

// onLoopback attaches a program to the daemon's own loopback interface.
func onLoopback(id uint32, direction string) *gobpfman.AttachRequest {
	return &gobpfman.AttachRequest{Id: id, Attach: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{
		TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: 50, Iface: "lo", Direction: direction},
	}}}
}

// TestLife makes every call for two programs of one object, and compares each response
// with the request and with other responses.
func TestLife(t *testing.T) {
	c := start(t)
	metadata := map[string]string{"bpfman.io/uuid": "a-b-c", "bpfman.io/ProgramName": "näme with spaces", "empty": ""}
	request := &gobpfman.LoadRequest{
		Bytecode:   c.object("tcx_test"),
		Metadata:   metadata,
		GlobalData: map[string][]byte{"GLOBAL_u8": {0xff}, "GLOBAL_u32": {13, 0, 0xfe, 10}},
		Uuid:       new("a-b-c"),
		Info:       []*gobpfman.LoadInfo{tcx("tcx_pass"), tcx("tcx_next")},
	}
	loaded := answer(c, c.load, request).GetPrograms()
	if len(loaded) != 2 || loaded[0].GetInfo().GetName() != "tcx_pass" || loaded[1].GetInfo().GetName() != "tcx_next" {
		t.Fatalf("loaded %v, want both in the order asked", loaded)
	}
	for _, p := range loaded {
		if diff := cmp.Diff(metadata, p.GetInfo().GetMetadata()); diff != "" {
			t.Errorf("metadata: %s", diff)
		}
		if diff := cmp.Diff(request.GetGlobalData(), p.GetInfo().GetGlobalData()); diff != "" {
			t.Errorf("global data: %s", diff)
		}
		if diff := cmp.Diff(request.GetBytecode(), p.GetInfo().GetBytecode(), protocmp.Transform()); diff != "" {
			t.Errorf("bytecode: %s", diff)
		}
		if k := p.GetKernelInfo(); k.GetTag() == "" || k.GetLoadedAt() == "" || k.GetName() != p.GetInfo().GetName() || p.GetInfo().MapOwnerId != nil {
			t.Errorf("kernel info %v of %v", k, p.GetInfo())
		}
	}
	if loaded[0].GetKernelInfo().GetId() >= loaded[1].GetKernelInfo().GetId() {
		t.Errorf("ids %v don't rise", loaded)
	}

	id := loaded[0].GetKernelInfo().GetId()
	ingress := answer(c, c.attach, onLoopback(id, "ingress")).GetLinkId()
	egress := answer(c, c.attach, onLoopback(id, "egress")).GetLinkId()
	c.holds(loaded[0], ingress, egress)
	c.holds(loaded[1])
	answer(c, c.detach, ingress)
	c.holds(loaded[0], egress)

	// Unload also removes the remaining link.
	answer(c, c.unload, id)
	if left := c.ids(&gobpfman.ListRequest{BpfmanProgramsOnly: new(true)}); !slices.Equal(left, []uint32{loaded[1].GetKernelInfo().GetId()}) {
		t.Errorf("programs %v are left", left)
	}
	c.refused("link of what was unloaded", func() error { _, err := call(c, c.detach, egress); return err }, `does not exist in tree "link_`)
}

// holds checks that Get and List return the same about a program as Load, with these
// links.
func (c client) holds(loaded *gobpfman.LoadResponseInfo, links ...uint32) {
	c.t.Helper()
	want := proto.CloneOf(loaded)
	slices.Sort(links)
	want.Info.Links = links
	got := answer(c, c.get, loaded.GetKernelInfo().GetId())
	slices.Sort(got.GetInfo().GetLinks())
	if diff := cmp.Diff(want.GetInfo(), got.GetInfo(), protocmp.Transform()); diff != "" {
		c.t.Errorf("Get, info: %s", diff)
	}
	if diff := cmp.Diff(want.GetKernelInfo(), got.GetKernelInfo(), protocmp.Transform()); diff != "" {
		c.t.Errorf("Get, kernel info: %s", diff)
	}
	for _, result := range answer(c, c.list, &gobpfman.ListRequest{}).GetResults() {
		if result.GetKernelInfo().GetId() != loaded.GetKernelInfo().GetId() {
			continue
		}
		slices.Sort(result.GetInfo().GetLinks())
		if diff := cmp.Diff(got.GetInfo(), result.GetInfo(), protocmp.Transform()) + cmp.Diff(got.GetKernelInfo(), result.GetKernelInfo(), protocmp.Transform()); diff != "" {
			c.t.Errorf("List, not as Get: %s", diff)
		}
		return
	}
	c.t.Errorf("List lacks program %d", loaded.GetKernelInfo().GetId())
}

// TestMaps checks the pins of an object's maps, and the list of programs that use them.
func TestMaps(t *testing.T) {
	c := start(t)
	request := &gobpfman.LoadRequest{Bytecode: c.object("go-app-counter"), Info: []*gobpfman.LoadInfo{
		tcx("tcx_stats"), {Name: "tracepoint_kill_recorder", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT},
	}}
	owners := answer(c, c.load, request).GetPrograms()
	for _, p := range owners {
		c.pinned(p.GetInfo().GetMapPinPath(), "tcx_stats_map", "tracepoint_stats_map")
	}
	owner := owners[0].GetKernelInfo().GetId()

	request = &gobpfman.LoadRequest{Bytecode: c.object("go-tcx-counter"), MapOwnerId: &owner, Info: []*gobpfman.LoadInfo{tcx("tcx_stats")}}
	user := answer(c, c.load, request).GetPrograms()[0]
	if user.GetInfo().GetMapOwnerId() != owner || user.GetInfo().GetMapPinPath() != owners[0].GetInfo().GetMapPinPath() {
		t.Errorf("a user of maps: %v", user)
	}
	users := []string{decimal(owner), decimal(user.GetKernelInfo().GetId())}
	slices.Sort(users)
	for _, program := range []uint32{owner, user.GetKernelInfo().GetId()} {
		got := answer(c, c.get, program).GetInfo().GetMapUsedBy()
		if slices.Sort(got); !slices.Equal(got, users) {
			t.Errorf("maps of program %d are used by %v, want %v", program, got, users)
		}
	}

	// The pins stay as long as a program uses the maps.
	answer(c, c.unload, owner)
	c.pinned(user.GetInfo().GetMapPinPath(), "tcx_stats_map")
	answer(c, c.unload, user.GetKernelInfo().GetId())
	if _, err := os.Stat(c.Path(user.GetInfo().GetMapPinPath())); !os.IsNotExist(err) {
		t.Errorf("pins of unused maps: %v", err)
	}
}

func (c client) pinned(dir string, want ...string) {
	c.t.Helper()
	entries, err := os.ReadDir(c.Path(dir))
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			c.t.Errorf("%s has %v, not %s", dir, names, name)
		}
	}
	if slices.ContainsFunc(names, func(n string) bool { return n[0] == '.' }) {
		c.t.Errorf("%s has the object's own sections: %v", dir, names)
	}
}

func TestListFilters(t *testing.T) {
	c := start(t)
	load := func(object, owner string, info *gobpfman.LoadInfo) uint32 {
		t.Helper()
		r := &gobpfman.LoadRequest{Bytecode: c.object(object), Info: []*gobpfman.LoadInfo{info}, Metadata: map[string]string{"owner": owner, "all": "yes"}}
		return answer(c, c.load, r).GetPrograms()[0].GetKernelInfo().GetId()
	}
	a := load("go-tcx-counter", "a", tcx("tcx_stats"))
	b := load("go-tcx-counter", "b", tcx("tcx_stats"))
	p := load("tracepoint", "b", &gobpfman.LoadInfo{Name: "enter_openat", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT})
	all := []uint32{a, b, p}
	ours := new(true)

	for name, tt := range map[string]struct {
		filter *gobpfman.ListRequest
		want   []uint32
	}{
		"ours":               {&gobpfman.ListRequest{BpfmanProgramsOnly: ours}, all},
		"type TCX":           {&gobpfman.ListRequest{BpfmanProgramsOnly: ours, ProgramType: new(uint32(schedCls))}, []uint32{a, b}},
		"type tracepoint":    {&gobpfman.ListRequest{BpfmanProgramsOnly: ours, ProgramType: new(uint32(tracepoint))}, []uint32{p}},
		"type with none":     {&gobpfman.ListRequest{BpfmanProgramsOnly: ours, ProgramType: new(uint32(6))}, nil},
		"metadata":           {&gobpfman.ListRequest{MatchMetadata: map[string]string{"all": "yes"}}, all},
		"metadata, value":    {&gobpfman.ListRequest{MatchMetadata: map[string]string{"owner": "b"}}, []uint32{b, p}},
		"metadata, two keys": {&gobpfman.ListRequest{MatchMetadata: map[string]string{"owner": "a", "all": "yes"}}, []uint32{a}},
		"metadata, no value": {&gobpfman.ListRequest{MatchMetadata: map[string]string{"owner": "c"}}, nil},
		"metadata, no key":   {&gobpfman.ListRequest{MatchMetadata: map[string]string{"absent": "yes"}}, nil},
		"metadata and type":  {&gobpfman.ListRequest{MatchMetadata: map[string]string{"owner": "b"}, ProgramType: new(uint32(schedCls))}, []uint32{b}},
	} {
		t.Run(name, func(t *testing.T) {
			c := client{c.Real, t}
			if got := c.ids(tt.filter); !slices.Equal(got, tt.want) {
				t.Errorf("listed %v, want %v", got, tt.want)
			}
		})
	}

	t.Run("foreign programs", func(t *testing.T) {
		foreign := loadForeign(t)
		c := client{c.Real, t}
		for _, result := range answer(c, c.list, &gobpfman.ListRequest{}).GetResults() {
			if result.GetKernelInfo().GetId() == foreign {
				if result.GetInfo() != nil {
					t.Errorf("a foreign program has info %v", result.GetInfo())
				}
				return
			}
		}
		t.Errorf("program %d of this test isn't listed", foreign)
	})
}

// TestMapsPinnedByNameAreShared checks which maps a program that uses a map owner really
// has. The daemon ignores map_owner_id when it loads, and always reports that such a
// program has its owner's maps.
func TestMapsPinnedByNameAreShared(t *testing.T) {
	for object, want := range map[string]bool{"go-tcx-counter": false, "go-xdp-counter-sharing-map": true} {
		t.Run(object, func(t *testing.T) {
			c := start(t)
			request := &gobpfman.LoadRequest{Bytecode: c.object(object), Info: []*gobpfman.LoadInfo{tcx("tcx_stats")}}
			owner := answer(c, c.load, request).GetPrograms()[0].GetKernelInfo()
			request.MapOwnerId = &owner.Id
			user := answer(c, c.load, request).GetPrograms()[0].GetKernelInfo()
			if len(owner.GetMapIds()) == 0 {
				t.Fatal("a counter without maps")
			}
			if shared := slices.Equal(owner.GetMapIds(), user.GetMapIds()); shared != want {
				t.Errorf("maps of the owner %v, of their user %v", owner.GetMapIds(), user.GetMapIds())
			}
		})
	}
}
