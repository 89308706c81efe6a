// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Program is one program that the daemon holds and that the agent loaded.
type Program struct {
	ID       uint32
	Function string
	Owner    program.Key
	OwnerUID string
	LoadID   string // metadata bpfman.io/load
	// Image is what the program was loaded from, zero where that isn't known.
	Image      bytecode.Image
	MapOwnerID *uint32
	MapUsedBy  []string
	MapIDs     []uint32
	Maps       map[string]string // name to pin
	Tag        string
	LoadedAt   string
	// Links by the daemon's id. The daemon can't tell what a link is attached
	// to, so a link that this agent neither made nor was told of is unknown: its
	// value is zero.
	Links map[uint32]Link
}

// Link is what is known of one link.
type Link struct {
	Point  string // program.AttachPoint's name
	Digest string
}

// Inventory is what the daemon holds, kept up to date by its own calls, so that
// the daemon, which serves one call at a time, isn't asked what is known
// already. Calls wait their turn in one lane.
type Inventory struct {
	rpc  gobpfman.BpfmanClient
	root string
	lane chan struct{}

	mu    sync.Mutex
	known bool
	// checked is whether the daemon is known to speak the agent's API.
	checked bool
	// unready is why nothing can be done with the daemon, nil once it has answered.
	unready  error
	programs map[uint32]Program
	// touched holds the owners of programs that calls for other owners changed.
	touched map[program.Key]bool
}

// NewInventory returns an inventory that knows nothing before its first
// Refresh. Root is where the daemon's file system is seen, "" where it is the
// agent's own.
func NewInventory(rpc gobpfman.BpfmanClient, root string) *Inventory {
	return &Inventory{
		rpc: rpc, root: root, lane: make(chan struct{}, 1), programs: map[uint32]Program{}, touched: map[program.Key]bool{},
		unready: errors.New("the bpfman daemon hasn't answered yet"),
	}
}

// do makes one call when its turn comes. Record runs before the next call's
// turn, so that nobody sees the effect without the record of it.
func do[R any](ctx context.Context, i *Inventory, op string, call func(context.Context) (R, error), record func(R)) error {
	select {
	case i.lane <- struct{}{}:
		defer func() { <-i.lane }()
	case <-ctx.Done():
		return fmt.Errorf("%s: wait for other calls to the daemon: %w", op, context.Cause(ctx))
	}
	response, err := call(ctx)

	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		if uncertain(err) {
			i.known = false
		}
		return &Error{Op: op, Cause: err}
	}
	record(response)
	return nil
}

// Between runs f when no call of the daemon is under way, and lets none begin
// before f has returned.
func (i *Inventory) Between(ctx context.Context, f func() error) error {
	select {
	case i.lane <- struct{}{}:
		defer func() { <-i.lane }()
	case <-ctx.Done():
		return fmt.Errorf("wait for other calls to the daemon: %w", context.Cause(ctx))
	}
	return f()
}

// Known tells whether the inventory is what the daemon holds. It isn't before
// the first Refresh, nor after a call whose outcome is unknown.
func (i *Inventory) Known() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known
}

// Ready is the reason why the daemon is of no use: it hasn't answered since the
// agent's start, or it speaks another API. A daemon that is away for a while isn't
// one: its programs stay attached.
func (i *Inventory) Ready() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unready
}

// Doubt makes the inventory unknown, as after the daemon has restarted.
func (i *Inventory) Doubt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.checked = false, false
}

// checkAPI fails with code Unimplemented where the daemon speaks another API:
// its list would be misread, and its refusals say nothing of the cause. It asks
// for an Attach without saying to what, which the daemon of v0.6.0 refuses
// before it does anything, and which is asked once for each connection.
func (i *Inventory) checkAPI(ctx context.Context) error {
	i.mu.Lock()
	checked := i.checked
	i.mu.Unlock()
	if checked {
		return nil
	}
	_, err := i.rpc.Attach(ctx, &gobpfman.AttachRequest{})
	if err != nil && status.Code(err) != codes.Aborted {
		return err //nolint:wrapcheck // the caller does
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.checked = true
	return nil
}

func (i *Inventory) refresh(ctx context.Context) ([]program.Key, error) {
	changed := map[program.Key]bool{}
	err := do(ctx, i, "list programs", func(ctx context.Context) (*gobpfman.ListResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		if err := i.checkAPI(ctx); err != nil {
			return nil, err
		}
		only := true
		return i.rpc.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &only})
	}, func(r *gobpfman.ListResponse) {
		for _, owner := range i.replace(r) {
			changed[owner] = true
		}
	})
	if err == nil || SpeaksOtherAPI(err) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.unready = err
	}
	return slices.Collect(maps.Keys(changed)), err
}

// replace takes over the daemon's list, keeps what is known of links, and
// returns the owners of whatever differs.
func (i *Inventory) replace(list *gobpfman.ListResponse) []program.Key {
	var changed []program.Key
	listed := map[uint32]Program{}
	for _, result := range list.GetResults() {
		p, ours := i.programOf(result.GetInfo(), result.GetKernelInfo())
		if !ours {
			continue
		}
		old, had := i.programs[p.ID]
		if had && old.LoadedAt == p.LoadedAt {
			for id := range p.Links {
				p.Links[id] = old.Links[id]
			}
		}
		if !had || !slices.Equal(sortedKeys(old.Links), sortedKeys(p.Links)) || !slices.Equal(old.MapUsedBy, p.MapUsedBy) {
			changed = append(changed, p.Owner)
		}
		listed[p.ID] = p
	}
	for id, old := range i.programs {
		if _, still := listed[id]; !still {
			changed = append(changed, old.Owner)
		}
	}
	i.programs, i.known = listed, true
	return changed
}

// programOf reads a program from the daemon; it isn't ours without our metadata.
func (i *Inventory) programOf(info *gobpfman.ProgramInfo, kernel *gobpfman.KernelProgramInfo) (Program, bool) {
	metadata := info.GetMetadata()
	if metadata[v1alpha1.MetadataUUID] == "" || metadata[v1alpha1.MetadataKind] == "" {
		return Program{}, false
	}
	p := Program{
		ID:       kernel.GetId(),
		Function: info.GetName(),
		Owner: program.Key{
			Kind:      metadata[v1alpha1.MetadataKind],
			Namespace: metadata[v1alpha1.MetadataNamespace],
			Name:      metadata[v1alpha1.MetadataProgramName],
		},
		OwnerUID: metadata[v1alpha1.MetadataUUID],
		LoadID:   metadata[v1alpha1.MetadataLoad],
		Image: bytecode.Image{
			Reference: metadata[v1alpha1.MetadataImage],
			Digest:    metadata[v1alpha1.MetadataDigest],
			Manifest:  metadata[v1alpha1.MetadataManifest],
		},
		MapOwnerID: info.MapOwnerId,
		MapUsedBy:  others(info.GetMapUsedBy(), kernel.GetId()),
		MapIDs:     kernel.GetMapIds(),
		Maps:       i.pins(info.GetMapPinPath()),
		Tag:        kernel.GetTag(),
		LoadedAt:   kernel.GetLoadedAt(),
		Links:      map[uint32]Link{},
	}
	for _, id := range info.GetLinks() {
		p.Links[id] = Link{}
	}
	return p, true
}

// others drops the program itself from the users of its maps, and sorts them:
// the daemon's order is any.
func others(users []string, id uint32) []string {
	self := strconv.FormatUint(uint64(id), 10)
	rest := slices.DeleteFunc(slices.Clone(users), func(u string) bool { return u == self })
	slices.Sort(rest)
	return rest
}

// pins lists the maps pinned in a directory of the daemon's. The wire has the
// directory only, and the kernel's names of maps are cut at 15 characters. A
// program without maps has no directory.
func (i *Inventory) pins(dir string) map[string]string {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(i.root, dir))
	if err != nil {
		return nil
	}
	pins := map[string]string{}
	for _, e := range entries {
		pins[e.Name()] = filepath.Join(dir, e.Name())
	}
	return pins
}

// Load loads an owner's functions in one call. An error names the bytecode as its
// user does: the daemon gets an image by its digest.
func (i *Inventory) Load(ctx context.Context, request *gobpfman.LoadRequest) error {
	names := make([]string, 0, len(request.GetInfo()))
	for _, f := range request.GetInfo() {
		names = append(names, f.GetName())
	}
	op := fmt.Sprintf("load %s from %s", list(names), source(request))
	return do(ctx, i, op, func(ctx context.Context) (*gobpfman.LoadResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, loadDeadline)
		defer cancel()
		return i.rpc.Load(ctx, request)
	}, func(r *gobpfman.LoadResponse) {
		for _, loaded := range r.GetPrograms() {
			if p, ours := i.programOf(loaded.GetInfo(), loaded.GetKernelInfo()); ours {
				i.programs[p.ID] = p
			}
			if loaded.GetInfo().MapOwnerId != nil {
				i.share(loaded.GetInfo().GetMapUsedBy())
			}
		}
	})
}

// Attach attaches a program to one place.
func (i *Inventory) Attach(ctx context.Context, id uint32, point program.AttachPoint) error {
	return do(ctx, i, "attach to "+point.Name, func(ctx context.Context) (*gobpfman.AttachResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		return i.rpc.Attach(ctx, &gobpfman.AttachRequest{Id: id, Attach: point.Info})
	}, func(r *gobpfman.AttachResponse) {
		if p, ok := i.programs[id]; ok {
			p.Links[r.GetLinkId()] = Link{Point: point.Name, Digest: point.Digest}
		}
	})
}

// Detach removes one link of a program. A link that is gone is no error.
func (i *Inventory) Detach(ctx context.Context, id, link uint32) error {
	return do(ctx, i, fmt.Sprintf("detach link %d", link), func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		_, err := i.rpc.Detach(ctx, &gobpfman.DetachRequest{LinkId: link})
		if gone(err, noLink, link) {
			err = nil
		}
		return struct{}{}, err
	}, func(struct{}) {
		if p, ok := i.programs[id]; ok {
			delete(p.Links, link)
		}
	})
}

// Unload detaches and unloads a program. One that is gone is no error.
func (i *Inventory) Unload(ctx context.Context, id uint32) error {
	return do(ctx, i, fmt.Sprintf("unload program %d", id), func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		_, err := i.rpc.Unload(ctx, &gobpfman.UnloadRequest{Id: id})
		if gone(err, noProgram, id) {
			err = nil
		}
		return struct{}{}, err
	}, func(struct{}) {
		delete(i.programs, id)
		self := strconv.FormatUint(uint64(id), 10)
		for _, p := range i.programs {
			if slices.Contains(p.MapUsedBy, self) {
				i.setUsers(p, others(p.MapUsedBy, id))
			}
		}
	})
}

// share notes who uses the same maps, as the daemon does when a user is loaded.
func (i *Inventory) share(users []string) {
	for _, p := range i.programs {
		if slices.Contains(users, strconv.FormatUint(uint64(p.ID), 10)) {
			i.setUsers(p, others(users, p.ID))
		}
	}
}

func (i *Inventory) setUsers(p Program, users []string) {
	if !slices.Equal(p.MapUsedBy, users) {
		p.MapUsedBy = users
		i.programs[p.ID] = p
		i.touched[p.Owner] = true
	}
}

// Touched returns, once, the owners whose programs gained or lost a user of
// their maps since the last time it was asked.
func (i *Inventory) Touched() []program.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := slices.Collect(maps.Keys(i.touched))
	clear(i.touched)
	return keys
}

// Recall tells the inventory what an earlier run of the agent recorded of a
// program's links, for those that it doesn't know. Kernel ids come again after
// a reboot, so the time of loading must agree.
func (i *Inventory) Recall(id uint32, loadedAt string, links map[uint32]Link) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p, ok := i.programs[id]
	if !ok || p.LoadedAt != loadedAt {
		return
	}
	for link, recorded := range links {
		if known, there := p.Links[link]; there && known == (Link{}) {
			p.Links[link] = recorded
		}
	}
}

// Lost tells what the daemon no longer holds of a program that was reported:
// the program itself, or some of its links.
func (i *Inventory) Lost(id uint32, loadedAt string, links map[uint32]Link) (program bool, lost int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p, ok := i.programs[id]
	if !ok || p.LoadedAt != loadedAt {
		return true, 0
	}
	for link := range links {
		if _, there := p.Links[link]; !there {
			lost++
		}
	}
	return false, lost
}

// Of returns the programs of an owner, by ascending id.
func (i *Inventory) Of(owner program.Key) []Program {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []Program
	for _, p := range i.programs {
		if p.Owner == owner {
			p.Links = maps.Clone(p.Links)
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Program) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// MapIDs returns the kernel ids of a program's maps, none for one that isn't held.
func (i *Inventory) MapIDs(id uint32) []uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.programs[id].MapIDs
}

// UsersOfMaps asks the daemon for all programs in the kernel, its own and others,
// and returns the ids of those that use each map, by the map's id.
func (i *Inventory) UsersOfMaps(ctx context.Context) (map[uint32][]uint32, error) {
	users := map[uint32][]uint32{}
	err := do(ctx, i, "list all programs", func(ctx context.Context) (*gobpfman.ListResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		return i.rpc.List(ctx, &gobpfman.ListRequest{})
	}, func(r *gobpfman.ListResponse) {
		for _, result := range r.GetResults() {
			for _, id := range result.GetKernelInfo().GetMapIds() {
				users[id] = append(users[id], result.GetKernelInfo().GetId())
			}
		}
	})
	return users, err
}

// Owners returns the owners of all programs held.
func (i *Inventory) Owners() []program.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	owners := map[program.Key]bool{}
	for _, p := range i.programs {
		owners[p.Owner] = true
	}
	return slices.Collect(maps.Keys(owners))
}

func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }

func source(request *gobpfman.LoadRequest) string {
	image := request.GetBytecode().GetImage()
	if image == nil {
		return "file " + request.GetBytecode().GetFile()
	}
	return "image " + cmp.Or(request.GetMetadata()[v1alpha1.MetadataImage], image.GetUrl())
}

// Resolved tells what an image's reference was resolved to when a program was
// loaded that the daemon holds: of the newest, where there are several.
func (i *Inventory) Resolved(reference string) (bytecode.Image, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var newest uint32
	var found bytecode.Image
	for id, p := range i.programs {
		if id > newest && p.Image.Digest != "" && p.Image.Reference == reference {
			newest, found = id, p.Image
		}
	}
	return found, newest != 0
}

// list is a few names, for a message of readable length.
func list(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}
