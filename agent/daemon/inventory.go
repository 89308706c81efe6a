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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Program is a program that the daemon has and that the agent has loaded.
type Program struct {
	ID       uint32
	Function string
	Owner    program.Key
	OwnerUID string
	LoadID   string // metadata bpfman.io/load
	// Image is what the program was loaded from, or zero if that is unknown.
	Image bytecode.Image
	// Unshared names the global variables that several functions use, but don't share.
	Unshared   string
	MapOwnerID *uint32
	MapUsedBy  []string
	MapIDs     []uint32
	Maps       map[string]string // pin path by name
	Tag        string
	LoadedAt   string
	// Globals is the size of the global data in the daemon's list, in bytes.
	Globals int
	// Links by the daemon's ID. The daemon doesn't report what a link is attached to.
	// The value is zero for links that this agent neither created nor has a record
	// of.
	Links map[uint32]Link
}

// Link contains what is known about a link.
type Link struct {
	Point  string // program.AttachPoint's name
	Digest string
}

// Losses are numbers of programs and links that disappeared from the daemon.
type Losses struct{ Programs, Links int }

// Inventory contains the programs that the daemon has. It is updated with each
// call, because the daemon serves one call at a time, and shouldn't be asked for
// known information. Calls run one at a time.
type Inventory struct {
	// Check returns an error unless a process that an attach point refers to is still the one of its container or sandbox. It
	// can be nil.
	Check func(program.Process) error

	rpc  gobpfman.BpfmanClient
	root string
	lane *lane
	// allowances limits Loads and Attaches.
	allowances allowances

	mu    sync.Mutex
	known bool
	// recognized is which daemon has answered since the connection was made, or "".
	recognized bpfman.Implementation
	// dialect is that of the last recognized daemon.
	dialect dialect
	// unready is the reason why the daemon can't be used, apart from its silence. It is
	// nil after the first response.
	unready  error
	programs map[uint32]Program
	// touched contains the owners whose programs were changed by calls for other
	// owners.
	touched map[program.Key]bool
	// lost is what disappeared between two lists although this process didn't remove it, by owner.
	lost map[program.Key]Losses
	// former is about the daemon that the node ran before.
	former former
	// failures contains the last error of each Load that failed.
	failures *lru.Cache
	// unlisted contains the pins of programs that the last lists lacked, and since when. Only the caller in the lane uses it.
	unlisted map[string]time.Time
}

// maxFailures is how many failed Loads are remembered.
const maxFailures = 1024

// NewInventory returns an inventory that is empty until the first Refresh. Root is
// the path of the daemon's file system, or "" if the agent has the same one.
func NewInventory(rpc gobpfman.BpfmanClient, root string) *Inventory {
	return &Inventory{
		rpc: rpc, root: root, lane: newLane(), programs: map[uint32]Program{}, touched: map[program.Key]bool{},
		lost: map[program.Key]Losses{}, dialect: rust{}, failures: lru.New(maxFailures), unready: problem.Errorf(problem.DaemonUnreachable, "the bpfman daemon hasn't answered yet"),
	}
}

// Known reports whether the inventory equals the daemon's list. This isn't the
// case before the first Refresh, and after a call with unknown outcome.
func (i *Inventory) Known() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known
}

// Ready returns the reason why the daemon can't be used, or nil: it hasn't
// responded since the agent started, it has another API, or it didn't answer the
// last call in time. A daemon that is restarted is ready, because its programs stay
// attached.
func (i *Inventory) Ready() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unready == nil && i.lane.isSilent() {
		return problem.Errorf(problem.DaemonBusy, "the bpfman daemon didn't answer in time")
	}
	return i.unready
}

// Invalidate makes the inventory unknown, for example after the daemon has restarted.
func (i *Inventory) Invalidate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.recognized = false, ""
}

func (i *Inventory) refresh(ctx context.Context) ([]program.Key, error) {
	changed := map[program.Key]bool{}
	err := do(ctx, i, "list programs", callDeadline, func(ctx context.Context, d dialect) (*gobpfman.ListResponse, error) {
		before, unrecorded := i.before()
		pins, err := pinned(i.root, d, before)
		response, failed := d.list(ctx, i.rpc, linksAmong(pins))
		if failed != nil {
			return nil, failed
		}
		if err = errors.Join(unrecorded, err, i.removeOrphans(ctx, d, pins, response), i.removeOtherDatabases(d, response)); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to remove what a daemon left")
		}
		return response, nil
	}, func(r *gobpfman.ListResponse) {
		for _, owner := range i.replace(r) {
			changed[owner] = true
		}
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil || SpeaksOtherAPI(err) || i.unready != nil && errors.Is(err, errUnfinished) {
		i.unready = err
	}
	return slices.Collect(maps.Keys(changed)), err
}

// replace replaces the programs with the daemon's list, keeps what is known about
// links, and returns the owners of all programs that differ.
func (i *Inventory) replace(list *gobpfman.ListResponse) []program.Key {
	var changed []program.Key
	lose := func(owner program.Key, programs, links int) {
		if was := i.lost[owner]; programs+links > 0 {
			i.lost[owner] = Losses{was.Programs + programs, was.Links + links}
		}
	}
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
			lose(p.Owner, 0, missing(old.Links, p.Links))
		}
		if !had || !slices.Equal(sortedKeys(old.Links), sortedKeys(p.Links)) || !slices.Equal(old.MapUsedBy, p.MapUsedBy) {
			changed = append(changed, p.Owner)
		}
		listed[p.ID] = p
	}
	for id, old := range i.programs {
		now, still := listed[id]
		if !still {
			changed = append(changed, old.Owner)
		}
		if now.LoadedAt != old.LoadedAt {
			lose(old.Owner, 1, 0)
		}
	}
	i.sortOut(listed)
	i.programs, i.known = listed, true
	return changed
}

// missing returns how many of the links aren't there anymore.
func missing(links, now map[uint32]Link) (missing int) {
	for id := range links {
		if _, still := now[id]; !still {
			missing++
		}
	}
	return missing
}

// programOf converts a program from the daemon. It returns false for programs
// without the agent's metadata.
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
		Unshared:   metadata[v1alpha1.MetadataUnshared],
		MapOwnerID: info.MapOwnerId,
		MapUsedBy:  others(info.GetMapUsedBy(), kernel.GetId()),
		MapIDs:     kernel.GetMapIds(),
		Maps:       i.pins(info.GetMapPinPath()),
		Tag:        kernel.GetTag(),
		LoadedAt:   kernel.GetLoadedAt(),
		Globals:    size(info.GetGlobalData()),
		Links:      map[uint32]Link{},
	}
	for _, id := range info.GetLinks() {
		p.Links[id] = Link{}
	}
	return p, true
}

// others returns the users of a program's maps without the program itself. It
// sorts them, because the daemon returns them in any order.
func others(users []string, id uint32) []string {
	self := strconv.FormatUint(uint64(id), 10)
	rest := slices.DeleteFunc(slices.Clone(users), func(u string) bool { return u == self })
	slices.Sort(rest)
	return rest
}

// pins returns the pin paths of the maps in a directory of the daemon. The API
// only has the directory, and the kernel truncates the names of maps to 15
// characters. A program without maps has no directory.
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

// Attach attaches a program to one attach point.
func (i *Inventory) Attach(ctx context.Context, id uint32, point program.AttachPoint) error {
	return do(ctx, i, "attach to "+point.Name, callDeadline, func(ctx context.Context, d dialect) (*gobpfman.AttachResponse, error) {
		owner := i.ownerOf(id)
		if err := d.admits(owner, point.Info); err != nil {
			return nil, err
		}
		allowance := i.allowances.of(owner.Namespace)
		if err := allowance.admitAttach(); err != nil {
			return nil, err
		}
		defer allowance.meterTime()()
		if err := i.succeed(ctx, id, point.Info); err != nil {
			return nil, err
		}
		return i.attach(ctx, d, id, point)
	}, func(r *gobpfman.AttachResponse) {
		if p, ok := i.programs[id]; ok {
			p.Links[r.GetLinkId()] = Link{Point: point.Name, Digest: point.Digest}
		}
	})
}

// ownerOf returns the owner of a program.
func (i *Inventory) ownerOf(id uint32) program.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.programs[id].Owner
}

// Detach removes one link of a program. If the link no longer exists, Detach returns
// no error.
func (i *Inventory) Detach(ctx context.Context, id, link uint32) error {
	return do(ctx, i, fmt.Sprintf("detach link %d", link), callDeadline, func(ctx context.Context, d dialect) (struct{}, error) {
		return struct{}{}, i.detach(ctx, d, link)
	}, func(struct{}) {
		if p, ok := i.programs[id]; ok {
			delete(p.Links, link)
		}
	})
}

// detach has the daemon detach a link, and removes what the daemon doesn't find.
func (i *Inventory) detach(ctx context.Context, d dialect, link uint32) error {
	err := d.detach(ctx, i.rpc, link)
	if d.gone(err, aLink, link) {
		return removeLinkPins(i.root, link)
	}
	return err
}

// Rename records another name for the attach point of a program's link.
func (i *Inventory) Rename(id, link uint32, to Link) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p, ok := i.programs[id]; ok {
		if _, there := p.Links[link]; there {
			p.Links[link] = to
		}
	}
}

// Unload detaches and unloads a program. If the program no longer exists,
// Unload returns no error.
func (i *Inventory) Unload(ctx context.Context, id uint32) error {
	return do(ctx, i, fmt.Sprintf("unload program %d", id), callDeadline, func(ctx context.Context, d dialect) (struct{}, error) {
		_, err := i.rpc.Unload(ctx, &gobpfman.UnloadRequest{Id: id})
		if err == nil || d.gone(err, aProgram, id) {
			err = removeLinkPins(i.root, i.linksOf(id)...)
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

// linksOf returns the IDs of a program's links.
func (i *Inventory) linksOf(id uint32) []uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.programs[id].Links))
}

// share updates the users of shared maps, like the daemon when it loads another
// user of the maps.
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

// Touched returns the owners whose programs gained or lost a user of their maps
// since it was last called.
func (i *Inventory) Touched() []program.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := slices.Collect(maps.Keys(i.touched))
	clear(i.touched)
	return keys
}

// Restore adds what an earlier process of the agent has recorded about a program's
// links, if this one doesn't know them. The load time must match, because the
// kernel reuses IDs after a reboot.
func (i *Inventory) Restore(id uint32, loadedAt string, links map[uint32]Link) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p, ok := i.programs[id]
	if !ok || !i.dialect.loadedTogether(p.LoadedAt, loadedAt) {
		return
	}
	for link, recorded := range links {
		if known, there := p.Links[link]; there && known == (Link{}) {
			p.Links[link] = recorded
		}
	}
}

// TakeLost returns what an owner has lost since the last call: programs and links that this process has seen, and that
// others removed. It excludes what was gone when the process started, for example after a reboot.
func (i *Inventory) TakeLost(owner program.Key) Losses {
	i.mu.Lock()
	defer i.mu.Unlock()
	lost := i.lost[owner]
	delete(i.lost, owner)
	return lost
}

// Of returns the programs of an owner, by ascending ID.
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

// MapIDs returns the kernel IDs of a program's maps, or nil if the daemon doesn't
// have the program.
func (i *Inventory) MapIDs(id uint32) []uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.programs[id].MapIDs
}

// UsersOfMaps gets the list of all programs in the kernel from the daemon,
// including those of others. For each map ID, it returns the IDs of the programs
// that use the map.
func (i *Inventory) UsersOfMaps(ctx context.Context) (map[uint32][]uint32, error) {
	users := map[uint32][]uint32{}
	err := do(ctx, i, "list all programs", callDeadline, func(ctx context.Context, _ dialect) (*gobpfman.ListResponse, error) {
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

// Owners returns the owners of all programs, also of the former daemon.
func (i *Inventory) Owners() []program.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	owners := map[program.Key]bool{}
	for _, p := range i.programs {
		owners[p.Owner] = true
	}
	for _, f := range i.former.Programs {
		owners[f.Owner] = true
	}
	return slices.Collect(maps.Keys(owners))
}

func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }

func source(request *gobpfman.LoadRequest) string {
	if image := request.GetMetadata()[v1alpha1.MetadataImage]; image != "" {
		return "image " + image
	}
	return "file " + request.GetBytecode().GetFile()
}

// Images returns the images of all programs.
func (i *Inventory) Images() []bytecode.Use {
	i.mu.Lock()
	defer i.mu.Unlock()
	var images []bytecode.Use
	for _, p := range i.programs {
		if p.Image != (bytecode.Image{}) {
			images = append(images, bytecode.Use{Image: p.Image, Namespace: p.Owner.Namespace})
		}
	}
	return images
}

// list joins the names for a message. It shortens long lists.
func list(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}
