// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/interrupt"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

var (
	owner = program.Key{Kind: "TcxProgram", Name: "counter"}
	other = program.Key{Kind: "TcxNsProgram", Namespace: "tenant", Name: "counter"}
)

func request(owner program.Key, functions ...string) *gobpfman.LoadRequest {
	r := &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: "/x.o"}},
		Metadata: map[string]string{
			v1alpha1.MetadataUUID: "uid-" + owner.String(), v1alpha1.MetadataKind: owner.Kind,
			v1alpha1.MetadataProgramName: owner.Name, v1alpha1.MetadataLoad: "hash",
		},
	}
	if owner.Namespace != "" {
		r.Metadata[v1alpha1.MetadataNamespace] = owner.Namespace
	}
	for _, f := range functions {
		r.Info = append(r.Info, &gobpfman.LoadInfo{Name: f})
	}
	return r
}

func point(name string) program.AttachPoint {
	return program.AttachPoint{Name: name, Digest: "digest of " + name, Info: &gobpfman.AttachInfo{}}
}

// known returns an inventory after its first Refresh.
func known(t *testing.T, rpc gobpfman.BpfmanClient, root string) *Inventory {
	t.Helper()
	i := NewInventory(rpc, root)
	refresh(t, i)
	return i
}

// refresh refreshes the inventory, and returns the owners with changes.
func refresh(t *testing.T, i *Inventory) []program.Key {
	t.Helper()
	changed, err := i.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !i.Known() {
		t.Fatal("not known after a refresh")
	}
	slices.SortFunc(changed, func(a, b program.Key) int { return strings.Compare(a.String(), b.String()) })
	return changed
}

// load loads and attaches a program, and returns it as the inventory has it.
func load(t *testing.T, i *Inventory, owner program.Key, points ...string) Program {
	t.Helper()
	p, err := tryLoad(t.Context(), i, owner, points...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryLoad(ctx context.Context, i *Inventory, owner program.Key, points ...string) (Program, error) {
	if err := i.Load(ctx, request(owner, "f")); err != nil {
		return Program{}, err
	}
	programs := i.Of(owner)
	newest := programs[len(programs)-1].ID
	for _, p := range points {
		if err := i.Attach(ctx, newest, point(p)); err != nil {
			return Program{}, err
		}
	}
	programs = i.Of(owner)
	return programs[len(programs)-1], nil
}

func TestInventoryFollowsItsOwnCalls(t *testing.T) {
	root := t.TempDir()
	d := daemontest.New(root)
	d.Maps = []string{"counter", "config"}
	i := NewInventory(d, root)
	if i.Known() {
		t.Error("known before it asked")
	}
	refresh(t, i)
	d.Calls()

	p := load(t, i, owner, "lo ingress", "lo egress")
	want := Program{
		ID: p.ID, Function: "f", Owner: owner, OwnerUID: "uid-TcxProgram/counter", LoadID: "hash",
		MapIDs: []uint32{1000 + p.ID}, Tag: "0123456789abcdef", LoadedAt: "2026-01-01T00:00:00+0000",
		Maps: map[string]string{
			"counter": fmt.Sprintf("/run/bpfman/fs/maps/%d/counter", p.ID),
			"config":  fmt.Sprintf("/run/bpfman/fs/maps/%d/config", p.ID),
		},
		Links: p.Links,
	}
	if got := fmt.Sprintf("%+v", p); got != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %s\nwant %+v", got, want)
	}
	var links []string
	for _, l := range p.Links {
		links = append(links, l.Point+", "+l.Digest)
	}
	slices.Sort(links)
	if !slices.Equal(links, []string{"lo egress, digest of lo egress", "lo ingress, digest of lo ingress"}) {
		t.Errorf("links %q", links)
	}

	load(t, i, other)
	if keys := i.Owners(); len(keys) != 2 || !slices.Contains(keys, owner) || !slices.Contains(keys, other) {
		t.Errorf("owners %v", keys)
	}
	link := slices.Min(slices.Collect(maps.Keys(p.Links)))
	if err := i.Detach(t.Context(), p.ID, link); err != nil {
		t.Fatal(err)
	}
	if _, there := i.Of(owner)[0].Links[link]; there || len(i.Of(owner)[0].Links) != 1 {
		t.Errorf("links %v after %d was detached", i.Of(owner)[0].Links, link)
	}
	if len(p.Links) != 2 {
		t.Error("what was returned earlier changed")
	}
	if calls := d.Calls(); slices.Contains(calls, "List") || slices.Contains(calls, "Get") {
		t.Errorf("the daemon was asked what is known: %v", calls)
	}
	if changed := refresh(t, i); len(changed) != 0 {
		t.Errorf("the daemon has other than known, of %v", changed)
	}
	if err := i.Unload(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	if keys := i.Owners(); !slices.Equal(keys, []program.Key{other}) || len(i.Of(owner)) != 0 {
		t.Errorf("owners %v", keys)
	}
}

func TestRefreshTellsWhatOthersDid(t *testing.T) {
	lost := map[string]Losses{"unloaded": {Programs: 1}, "detached": {Links: 1}}
	for name, change := range map[string]func(context.Context, *edited, Program) error{
		"unloaded": func(ctx context.Context, d *edited, p Program) error {
			_, err := d.Unload(ctx, &gobpfman.UnloadRequest{Id: p.ID})
			return err
		},
		"detached": func(ctx context.Context, d *edited, p Program) error {
			_, err := d.Detach(ctx, &gobpfman.DetachRequest{LinkId: slices.Max(slices.Collect(maps.Keys(p.Links)))})
			return err
		},
		"attached": func(ctx context.Context, d *edited, p Program) error {
			_, err := d.Attach(ctx, &gobpfman.AttachRequest{Id: p.ID, Attach: &gobpfman.AttachInfo{}})
			return err
		},
		"loaded": func(ctx context.Context, d *edited, _ Program) error {
			_, err := d.Load(ctx, request(owner, "g"))
			return err
		},
		"maps shared": func(_ context.Context, d *edited, p Program) error {
			d.edit = func(r *gobpfman.ListResponse_ListResult) {
				if r.GetKernelInfo().GetId() == p.ID {
					r.Info.MapUsedBy = append(r.Info.MapUsedBy, "9999")
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &edited{Daemon: daemontest.New(t.TempDir())}
			i := known(t, d, "")
			p := load(t, i, owner, "lo ingress")
			load(t, i, other, "lo ingress")
			if err := change(t.Context(), d, p); err != nil {
				t.Fatal(err)
			}
			if changed := refresh(t, i); !slices.Equal(changed, []program.Key{owner}) {
				t.Errorf("changed: %v", changed)
			}
			if changed := refresh(t, i); len(changed) != 0 {
				t.Errorf("changed once more: %v", changed)
			}
			if got := i.TakeLost(owner); got != lost[name] {
				t.Errorf("lost %+v, want %+v", got, lost[name])
			}
			if got := i.TakeLost(owner); got != (Losses{}) {
				t.Errorf("lost %+v once more", got)
			}
		})
	}
}

// edited is a daemon that edits the results of its list.
type edited struct {
	*daemontest.Daemon
	edit func(*gobpfman.ListResponse_ListResult)
}

func (e *edited) List(ctx context.Context, in *gobpfman.ListRequest, opts ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	list, err := e.Daemon.List(ctx, in, opts...)
	if err == nil && e.edit != nil {
		for _, r := range list.GetResults() {
			e.edit(r)
		}
	}
	return list, err
}

func TestUsersOfMaps(t *testing.T) {
	d := &edited{Daemon: daemontest.New(t.TempDir())}
	p := load(t, known(t, d, ""), owner)
	d.edit = func(r *gobpfman.ListResponse_ListResult) { r.Info.MapUsedBy = []string{"30", fmt.Sprint(p.ID), "20"} }
	if used := known(t, d, "").Of(owner)[0].MapUsedBy; !slices.Equal(used, []string{"20", "30"}) {
		t.Errorf("maps of %d are used by %v", p.ID, used)
	}
}

func TestForeignProgramsAreNotOurs(t *testing.T) {
	d := daemontest.New(t.TempDir())
	for _, metadata := range []map[string]string{
		nil,
		{"owner": "somebody"},
		{v1alpha1.MetadataUUID: "uid", v1alpha1.MetadataProgramName: "upstream's"}, // upstream's agent sets no kind
		{v1alpha1.MetadataKind: "TcxProgram", v1alpha1.MetadataProgramName: "counter"},
	} {
		if _, err := d.Load(t.Context(), &gobpfman.LoadRequest{Metadata: metadata, Info: []*gobpfman.LoadInfo{{Name: "f"}}}); err != nil {
			t.Fatal(err)
		}
	}
	unknown := &edited{Daemon: d, edit: func(r *gobpfman.ListResponse_ListResult) { r.Info = nil }}
	for name, rpc := range map[string]gobpfman.BpfmanClient{"with metadata": d, "without info": unknown} {
		i := NewInventory(rpc, "")
		if changed := refresh(t, i); len(changed) != 0 || len(i.Owners()) != 0 || len(i.Of(program.Key{})) != 0 {
			t.Errorf("%s: changed %v, owners %v", name, changed, i.Owners())
		}
	}
}

// A new process of the agent finds the programs of the previous one, and gets their links from its records.
func TestRecall(t *testing.T) {
	d := daemontest.New(t.TempDir())
	before := load(t, known(t, d, ""), owner, "lo ingress", "lo egress")
	recorded := maps.Clone(before.Links)
	recorded[4711] = Link{Point: "gone", Digest: "d"}
	unrecorded := slices.Min(slices.Collect(maps.Keys(before.Links)))
	some := maps.Clone(recorded)
	delete(some, unrecorded)

	for name, c := range map[string]struct {
		id       uint32
		loadedAt string
		links    map[uint32]Link
		want     map[uint32]Link
	}{
		"all":             {before.ID, before.LoadedAt, recorded, before.Links},
		"some":            {before.ID, before.LoadedAt, some, with(before.Links, unrecorded, Link{})},
		"none":            {before.ID, before.LoadedAt, nil, zero(before.Links)},
		"another load":    {before.ID, "2025-01-01T00:00:00+0000", recorded, zero(before.Links)},
		"another program": {before.ID + 1, before.LoadedAt, recorded, zero(before.Links)},
	} {
		t.Run(name, func(t *testing.T) {
			i := known(t, d, "")
			i.Restore(c.id, c.loadedAt, c.links)
			if got := i.Of(owner)[0].Links; !maps.Equal(got, c.want) {
				t.Errorf("links %v, want %v", got, c.want)
			}
			// Known links are neither lost in a refresh nor overwritten.
			i.Restore(before.ID, before.LoadedAt, with(zero(before.Links), unrecorded, Link{Point: "other"}))
			refresh(t, i)
			got := i.Of(owner)[0].Links
			if c.want[unrecorded] != (Link{}) && got[unrecorded] != c.want[unrecorded] {
				t.Errorf("link %d was %v, became %v", unrecorded, c.want[unrecorded], got[unrecorded])
			}
		})
	}
}

// After a reboot, the kernel reuses IDs. Nothing that was known is valid.
func TestSameIDOfAnotherLoad(t *testing.T) {
	d := &edited{Daemon: daemontest.New(t.TempDir())}
	i := known(t, d, "")
	p := load(t, i, owner, "lo ingress")
	d.edit = func(r *gobpfman.ListResponse_ListResult) { r.KernelInfo.LoadedAt = "2026-02-02T00:00:00+0000" }
	refresh(t, i)
	if got := i.Of(owner)[0].Links; !maps.Equal(got, zero(p.Links)) {
		t.Errorf("links %v, want them unknown", got)
	}
	if lost := i.TakeLost(owner); lost != (Losses{Programs: 1}) {
		t.Errorf("lost %+v, want the former program", lost)
	}
}

// What a process of the agent removes, or never saw, isn't lost.
func TestNothingIsLost(t *testing.T) {
	d := daemontest.New(t.TempDir())
	i := known(t, d, "")
	p := load(t, i, owner, "lo ingress", "lo egress")
	for _, remove := range []func() error{
		func() error { return i.Detach(t.Context(), p.ID, slices.Min(slices.Collect(maps.Keys(p.Links)))) },
		func() error { return i.Unload(t.Context(), p.ID) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		refresh(t, i)
	}
	if lost := i.TakeLost(owner); lost != (Losses{}) {
		t.Errorf("lost %+v", lost)
	}
}

func with(links map[uint32]Link, id uint32, link Link) map[uint32]Link {
	links = maps.Clone(links)
	links[id] = link
	return links
}

func zero(links map[uint32]Link) map[uint32]Link {
	out := map[uint32]Link{}
	for id := range links {
		out[id] = Link{}
	}
	return out
}

// calls contains each call that changes something, with a program that is loaded and attached.
var calls = map[string]func(context.Context, *Inventory, Program) error{
	"Load": func(ctx context.Context, i *Inventory, _ Program) error { return i.Load(ctx, request(owner, "g")) },
	"Attach": func(ctx context.Context, i *Inventory, p Program) error {
		return i.Attach(ctx, p.ID, point("eth0 ingress"))
	},
	"Unload": func(ctx context.Context, i *Inventory, p Program) error { return i.Unload(ctx, p.ID) },
	"Detach": func(ctx context.Context, i *Inventory, p Program) error {
		return i.Detach(ctx, p.ID, slices.Min(slices.Collect(maps.Keys(p.Links))))
	},
}

// A call without a response may have taken effect. Then the inventory is unknown until the next refresh. If the daemon
// refuses a call, the inventory stays known.
func TestDoubt(t *testing.T) {
	for name, call := range calls {
		for code, doubt := range map[codes.Code]bool{
			codes.Aborted: false, codes.Unavailable: true, codes.DeadlineExceeded: true, codes.Canceled: true, codes.ResourceExhausted: true,
		} {
			for _, done := range []bool{false, true} {
				if done && !doubt {
					continue // a refused call has no effect
				}
				t.Run(fmt.Sprintf("%s/%s/%v", name, code, done), func(t *testing.T) {
					d := daemontest.New(t.TempDir())
					i := known(t, d, "")
					p := load(t, i, owner, "lo ingress")
					d.Fault = func(_ string, _ proto.Message, after bool) error {
						if after == done {
							return status.Error(code, "the reason")
						}
						return nil
					}
					err := call(t.Context(), i, p)
					if status.Code(err) != code || err == nil {
						t.Errorf("error %v has no code %s", err, code)
					}
					if i.Known() == doubt {
						t.Errorf("known: %v", i.Known())
					}
					if fmt.Sprint(i.Of(owner)) != fmt.Sprint([]Program{p}) {
						t.Errorf("has %v, had %v", i.Of(owner), p)
					}
					d.Fault = nil
					changed := refresh(t, i)
					if (len(changed) == 1) != done {
						t.Errorf("changed: %v", changed)
					}
					agrees(t, i, d)
				})
			}
		}
	}
}

func TestDoubtOnRequest(t *testing.T) {
	i := known(t, daemontest.New(t.TempDir()), "")
	i.Invalidate()
	if i.Known() {
		t.Error("known in spite of doubt")
	}
	refresh(t, i)
}

func TestRefreshFails(t *testing.T) {
	d := daemontest.New(t.TempDir())
	i := known(t, d, "")
	p := load(t, i, owner, "lo ingress")
	d.Fault = func(string, proto.Message, bool) error { return status.Error(codes.Unavailable, "no socket") }
	changed, err := i.Refresh(t.Context())
	if len(changed) != 0 || err == nil || err.Error() != "list programs: the bpfman daemon can't be reached: no socket" {
		t.Errorf("changed %v, error %v", changed, err)
	}
	if fmt.Sprint(i.Of(owner)) != fmt.Sprint([]Program{p}) || i.Known() {
		t.Errorf("has %v, known: %v", i.Of(owner), i.Known())
	}
}

// An unfinished snapshot prevents the daemon from opening its database until it is removed. A recent one stays, because
// it may be in progress.
func TestUnfinishedSnapshots(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, databaseDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"snap.01": time.Hour, "snap.02.generating": time.Hour, "snap.03.generating": 0, "snap.04.generating": -time.Hour, "db": time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	d := daemontest.New(t.TempDir())
	d.Fault = func(string, proto.Message, bool) error {
		if left, _ := filepath.Glob(filepath.Join(dir, "snap.02.generating")); len(left) == 0 {
			return nil
		}
		return status.Error(codes.Aborted, `status: Aborted, message: "failed to list programs: Failed to acquire database lock, please try again later", details: [], metadata: MetadataMap { headers: {} }`)
	}
	refresh(t, NewInventory(d, root))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if err != nil || !slices.Equal(left, []string{"db", "snap.01", "snap.03.generating"}) {
		t.Errorf("left are %q, %v", left, err)
	}
	// If there is nothing to repair, the error is the daemon's.
	d.Fault = func(string, proto.Message, bool) error { return status.Error(codes.Aborted, noDatabase) }
	if _, err := NewInventory(d, root).Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), noDatabase) {
		t.Errorf("error %v", err)
	}
}

// Removing something that no longer exists succeeds, but other errors about missing objects are returned.
func TestRemovalOfWhatIsGone(t *testing.T) {
	for name, remove := range map[string]func(*Inventory, *daemontest.Daemon, Program) error{
		"Detach": func(i *Inventory, d *daemontest.Daemon, p Program) error {
			for link := range p.Links {
				if _, err := d.Detach(t.Context(), &gobpfman.DetachRequest{LinkId: link}); err != nil {
					return err
				}
				if err := i.Detach(t.Context(), p.ID, link); err != nil {
					return err
				}
			}
			return nil
		},
		"Unload": func(i *Inventory, d *daemontest.Daemon, p Program) error {
			if _, err := d.Unload(t.Context(), &gobpfman.UnloadRequest{Id: p.ID}); err != nil {
				return err
			}
			return i.Unload(t.Context(), p.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.New(t.TempDir())
			i := known(t, d, "")
			p := load(t, i, owner, "lo ingress")
			if err := remove(i, d, p); err != nil || !i.Known() {
				t.Errorf("error %v, known: %v", err, i.Known())
			}
			agrees(t, i, d)

			p = load(t, i, owner, "lo ingress")
			d.Fault = func(string, proto.Message, bool) error {
				return status.Error(codes.Aborted, "An error occurred. map_pin_path does not exists")
			}
			if err := calls[name](t.Context(), i, p); err == nil {
				t.Error("another failure was taken for success")
			}
		})
	}
}

// If a call's context ends while it waits for another call, the call isn't made, and the inventory stays known.
func TestTurn(t *testing.T) {
	d := daemontest.New(t.TempDir())
	i := known(t, d, "")
	p := load(t, i, owner, "lo ingress")
	entered, leave := make(chan struct{}), make(chan struct{})
	d.Fault = func(_ string, _ proto.Message, done bool) error {
		if !done {
			close(entered)
			<-leave
		}
		return nil
	}
	first := make(chan error, 1)
	go func() { first <- i.Load(t.Context(), request(other, "f")) }()
	await(t, entered, "the first call")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls {
		if err := call(ctx, i, p); err == nil || !strings.Contains(err.Error(), "wait for other calls to the daemon") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !i.Known() {
		t.Error("calls that weren't made cast doubt")
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	d.Fault = nil
	agrees(t, i, d)
}

// interrupting interrupts each Load while it is in progress.
type interrupting struct {
	*daemontest.Daemon

	stop func()
}

func (d interrupting) Load(ctx context.Context, in *gobpfman.LoadRequest, o ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	if d.stop(); ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return d.Daemon.Load(ctx, in, o...)
}

// An interruption prevents the next call, and doesn't end the one in progress, whose outcome would be unknown.
func TestInterruption(t *testing.T) {
	d := daemontest.New(t.TempDir())
	ctx, stop := interrupt.With(t.Context())
	i := NewInventory(interrupting{d, func() { stop(errors.New("a reason")) }}, "")
	if _, err := i.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := i.Load(ctx, request(owner, "f")); err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	if err := i.Load(ctx, request(owner, "g")); err == nil || !strings.Contains(err.Error(), "a reason") {
		t.Errorf("the next call: %v", err)
	}
	if !i.Known() || len(d.Programs()) != 1 {
		t.Errorf("known: %t, %+v", i.Known(), d.Programs())
	}
}

// Operations name their target. Long lists of functions are shortened.
func TestOperationsAreNamed(t *testing.T) {
	d := daemontest.New(t.TempDir())
	d.Fault = func(string, proto.Message, bool) error { return status.Error(codes.Aborted, "no") }
	i := NewInventory(d, "")
	image := request(owner, "a", "b", "c", "d", "e", "f", "g")
	image.Metadata[v1alpha1.MetadataImage] = "quay.io/x"
	for want, err := range map[string]error{
		"no, when loading f from file /x.o":                              i.Load(t.Context(), request(owner, "f")),
		"no, when loading a, b, c, d, e and 2 more from image quay.io/x": i.Load(t.Context(), image),
		"attach to lo ingress: no":                                       i.Attach(t.Context(), 7, point("lo ingress")),
		"detach link 8: no":                                              i.Detach(t.Context(), 7, 8),
		"unload program 7: no":                                           i.Unload(t.Context(), 7),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Many concurrent owners, with refreshes in between. The race detector checks them, and in the end the inventory must
// equal the daemon's list.
func TestManyAtOnce(t *testing.T) {
	root := t.TempDir()
	d := daemontest.New(root)
	i := known(t, d, root)
	var all sync.WaitGroup
	for n := range 8 {
		key := program.Key{Kind: "TcxProgram", Name: fmt.Sprint("p", n)}
		all.Go(func() {
			for round := range 5 {
				p, err := tryLoad(t.Context(), i, key, "lo ingress", "lo egress")
				if err != nil {
					t.Error(err)
					return
				}
				i.Restore(p.ID, p.LoadedAt, map[uint32]Link{1: {Point: "x"}})
				if err := i.Detach(t.Context(), p.ID, slices.Min(slices.Collect(maps.Keys(p.Links)))); err != nil {
					t.Error(err)
				}
				if round%2 == 0 {
					if err := i.Unload(t.Context(), p.ID); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Go(func() {
			if changed, err := i.Refresh(t.Context()); err != nil || len(changed) != 0 {
				t.Errorf("changed by nobody else: %v, %v", changed, err)
			}
			i.Owners()
			i.Known()
		})
	}
	all.Wait()
	agrees(t, i, d)
	if n := len(d.Programs()); n != 8*2 {
		t.Errorf("%d programs are left", n)
	}
}

// agrees compares the inventory with the daemon.
func agrees(t *testing.T, i *Inventory, d *daemontest.Daemon) {
	t.Helper()
	var got, want []string
	for _, key := range i.Owners() {
		for _, p := range i.Of(key) {
			got = append(got, fmt.Sprint(p.ID, p.Function, len(p.Links)))
		}
	}
	for _, p := range d.Programs() {
		want = append(want, fmt.Sprint(p.ID, p.Function, len(p.Links)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("inventory %q, daemon %q", got, want)
	}
}

// The users of a program's maps are known immediately, without a call of the daemon, and Touched returns the owners
// that are affected.
func TestUsersOfMapsAreKnownAtOnce(t *testing.T) {
	d := daemontest.New(t.TempDir())
	d.PinnedByName = true
	i := NewInventory(d, d.Root)
	ctx := t.Context()
	if _, err := i.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	load := func(name string, mapOwner *uint32) Program {
		err := i.Load(ctx, &gobpfman.LoadRequest{
			Info: []*gobpfman.LoadInfo{{Name: name}}, MapOwnerId: mapOwner,
			Metadata: map[string]string{v1alpha1.MetadataUUID: name, v1alpha1.MetadataKind: "TcxProgram", v1alpha1.MetadataProgramName: name},
		})
		if err != nil {
			t.Fatal(err)
		}
		return i.Of(program.Key{Kind: "TcxProgram", Name: name})[0]
	}
	check := func(name string, want ...string) {
		t.Helper()
		if got := i.Of(program.Key{Kind: "TcxProgram", Name: name})[0].MapUsedBy; !slices.Equal(got, want) {
			t.Errorf("%s: used by %q, not %q", name, got, want)
		}
	}
	touched := func(want ...string) {
		t.Helper()
		var got []string
		for _, key := range i.Touched() {
			got = append(got, key.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("touched are %q, not %q", got, want)
		}
	}
	owner := load("owner", nil)
	touched()
	one := load("one", &owner.ID)
	check("owner", "102")
	check("one", "101")
	touched("owner")
	load("two", &owner.ID)
	check("owner", "102", "103")
	check("one", "101", "103")
	touched("one", "owner")
	if err := i.Unload(ctx, one.ID); err != nil {
		t.Fatal(err)
	}
	check("owner", "103")
	check("two", "101")
	touched("owner", "two")
	if changed, err := i.Refresh(ctx); err != nil || len(changed) > 0 {
		t.Errorf("the daemon knows better of %v, %v", changed, err)
	}
}

// If the daemon has another API, its list isn't read, and the error names the cause. After a reconnect, the API is
// checked again.
func TestRefreshOfAnotherAPI(t *testing.T) {
	d := daemontest.New(t.TempDir())
	d.NoAttach = true
	i := NewInventory(d, "")
	if i.Ready() == nil {
		t.Error("ready before the daemon has answered")
	}
	for range 2 {
		_, err := i.Refresh(t.Context())
		if err == nil || err.Error() != "list programs: "+bpfman.UnsupportedDaemon || !SpeaksOtherAPI(err) || i.Known() || !errors.Is(i.Ready(), err) {
			t.Fatalf("error %v, known: %v, ready: %v", err, i.Known(), i.Ready())
		}
	}
	if calls := d.Calls(); len(calls) != 0 {
		t.Errorf("calls %q of a daemon that speaks another API", calls)
	}
	d.NoAttach = false
	refresh(t, i)
	if err := i.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	i.Invalidate() // another connection
	d.NoAttach = true
	if _, err := i.Refresh(t.Context()); !SpeaksOtherAPI(err) || i.Ready() == nil {
		t.Errorf("error %v, ready: %v", err, i.Ready())
	}
}

// The daemon's list repeats an object's global data for each of its functions. A Load after
// which the list couldn't be read anymore is refused.
func TestGlobalDataIsLimited(t *testing.T) {
	root := t.TempDir()
	d := daemontest.New(root)
	i := known(t, d, root)
	loads := func(owner program.Key, functions, globals int) error {
		var names []string
		for n := range functions {
			names = append(names, fmt.Sprint("f", n))
		}
		r := request(owner, names...)
		r.GlobalData = map[string][]byte{"table": make([]byte, globals)}
		return i.Load(t.Context(), r)
	}
	if err := loads(owner, 20, 1<<20); err != nil {
		t.Fatal(err)
	}
	err := loads(other, 20, 1<<20)
	if failed := (*Error)(nil); !errors.As(err, &failed) || !failed.Refused() || !strings.Contains(err.Error(), "make globaldata smaller") || len(i.Of(other)) != 0 {
		t.Errorf("loaded %d programs: %v", len(i.Of(other)), err)
	}
	if !i.Known() {
		t.Error("the refusal made the inventory unknown")
	}
	if err := loads(other, 20, 0); err != nil {
		t.Errorf("without global data: %v", err)
	}
	if err := loads(owner, 20, 1<<20); err != nil {
		t.Errorf("a reload, which replaces the object's programs: %v", err)
	}
	refresh(t, i)
}
