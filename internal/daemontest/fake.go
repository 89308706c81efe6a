// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemontest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Daemon is a daemon in memory, for unit tests, for faults that can't be caused in the
// real daemon, and for large numbers of objects. It implements gobpfman.BpfmanClient. It
// behaves as the daemon of v0.6.0, or the one in Go, was observed to behave. Only tests with the real daemon
// show that something works.
type Daemon struct {
	// Root is the directory of its file system, in which it pins maps below MapsRoot.
	Root, MapsRoot string
	// Fault, if set, is called before each call, and after the call has taken
	// effect. If it returns an error, the call returns it.
	Fault func(call string, request proto.Message, done bool) error
	// NoAttach makes it a daemon of v0.5, which doesn't implement Attach.
	NoAttach bool
	// LoadedAt is the load time of new programs, in the kernel's format.
	LoadedAt string
	// Maps contains the names of the maps in all objects.
	Maps []string
	// PinnedByName means that objects pin their maps by name. Only such maps are
	// shared with programs that select a map owner, although the real daemon
	// reports all maps as shared.
	PinnedByName bool

	// turn has room for one call. It isn't a mutex, so that a fault can take time in a synctest bubble.
	turn chan struct{}
	// speaks is how it answers.
	speaks dialect

	mu       sync.Mutex
	last     uint32
	lastLink uint32
	programs map[uint32]*program
	calls    []string
	// seen is what Programs returns, until a call changes it.
	seen []Loaded
}

type program struct {
	info   *gobpfman.ProgramInfo
	kernel *gobpfman.KernelProgramInfo
	attach map[uint32]*gobpfman.AttachInfo
}

var _ gobpfman.BpfmanClient = &Daemon{}

// firstID is the ID before that of the first program.
const firstID = 100

// New returns a daemon of v0.6.0 without programs. All objects have one map, "counter".
func New(root string) *Daemon {
	return &Daemon{
		speaks: &rust{}, Root: root, MapsRoot: "/run/bpfman/fs/maps", LoadedAt: "2026-01-01T00:00:00+0000", Maps: []string{"counter"},
		turn: make(chan struct{}, 1), last: firstID, programs: map[uint32]*program{},
	}
}

// SetFault sets the Fault of a daemon that is in use.
func (d *Daemon) SetFault(fault func(call string, request proto.Message, done bool) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Fault = fault
}

// call makes one call at a time, like the daemon.
func call[R any](d *Daemon, name string, request proto.Message, do func() (R, error)) (R, error) {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	d.mu.Lock()
	d.calls = append(d.calls, name)
	fault := d.Fault
	d.mu.Unlock()
	var none R
	if fault != nil {
		if err := fault(name, request, false); err != nil {
			return none, err
		}
	}
	d.mu.Lock()
	if name != "List" && name != "Get" {
		d.seen = nil
	}
	response, err := do()
	d.mu.Unlock()
	if err == nil && fault != nil {
		if err := fault(name, request, true); err != nil {
			return none, err
		}
	}
	return response, err
}

// Load implements gobpfman.BpfmanClient.
func (d *Daemon) Load(_ context.Context, in *gobpfman.LoadRequest, _ ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	return call(d, "Load", in, func() (*gobpfman.LoadResponse, error) {
		if err := d.speaks.checkLoad(d, in); err != nil {
			return nil, err
		}
		owner := d.programs[in.GetMapOwnerId()]
		out := &gobpfman.LoadResponse{}
		var shared []uint32 // the maps of the Load
		for _, f := range in.GetInfo() {
			d.last++
			id := d.last
			p := &program{
				info: &gobpfman.ProgramInfo{
					Name: f.GetName(), Bytecode: in.GetBytecode(), GlobalData: in.GetGlobalData(), MapOwnerId: in.MapOwnerId,
					MapPinPath: filepath.Join(d.MapsRoot, strconv.Itoa(int(id))), Metadata: in.GetMetadata(), MapUsedBy: []string{strconv.Itoa(int(id))},
				},
				kernel: &gobpfman.KernelProgramInfo{Id: id, Name: f.GetName(), LoadedAt: d.speaks.time(d.LoadedAt), Tag: "0123456789abcdef"},
				attach: map[uint32]*gobpfman.AttachInfo{},
			}
			shared = d.speaks.mapsOf(id, shared)
			p.kernel.MapIds = shared
			if owner != nil {
				p.info.MapPinPath = owner.info.GetMapPinPath()
				p.info.MapUsedBy = append(slices.Clone(owner.info.GetMapUsedBy()), p.info.GetMapUsedBy()...)
				d.setUsers(p.info.GetMapUsedBy())
				if d.speaks.sharesWithOwner(d) {
					p.kernel.MapIds = owner.kernel.GetMapIds()
				}
			}
			if err := d.pin(p.info.GetMapPinPath()); err != nil {
				return nil, err
			}
			d.programs[id] = p
			owner = d.programs[in.GetMapOwnerId()]
			out.Programs = append(out.Programs, &gobpfman.LoadResponseInfo{Info: clone(p.info), KernelInfo: clone(p.kernel)})
		}
		return out, nil
	})
}

func namesTwice(functions []*gobpfman.LoadInfo) bool {
	names := map[string]bool{}
	for _, f := range functions {
		names[f.GetName()] = true
	}
	return len(names) < len(functions)
}

func (d *Daemon) pin(dir string) error {
	dir = filepath.Join(d.Root, dir)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return aborted("pin: %v", err)
	}
	for _, name := range d.Maps {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return aborted("pin: %v", err)
		}
	}
	return nil
}

// setUsers sets the users of maps in all programs that share them.
func (d *Daemon) setUsers(users []string) {
	for id, p := range d.programs {
		if slices.Contains(users, strconv.Itoa(int(id))) {
			p.info.MapUsedBy = users
		}
	}
}

// Unload implements gobpfman.BpfmanClient.
func (d *Daemon) Unload(_ context.Context, in *gobpfman.UnloadRequest, _ ...grpc.CallOption) (*gobpfman.UnloadResponse, error) {
	return call(d, "Unload", in, func() (*gobpfman.UnloadResponse, error) {
		if d.programs[in.GetId()] == nil {
			return nil, d.speaks.noProgram(in.GetId())
		}
		info := d.programs[in.GetId()].info
		delete(d.programs, in.GetId())
		left := slices.DeleteFunc(slices.Clone(info.GetMapUsedBy()), func(u string) bool { return u == strconv.Itoa(int(in.GetId())) })
		d.setUsers(left)
		if len(left) == 0 {
			if err := os.RemoveAll(filepath.Join(d.Root, info.GetMapPinPath())); err != nil {
				return nil, status.Errorf(codes.Aborted, "unpin: %v", err)
			}
		}
		return &gobpfman.UnloadResponse{}, nil
	})
}

// Attach implements gobpfman.BpfmanClient.
func (d *Daemon) Attach(_ context.Context, in *gobpfman.AttachRequest, _ ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	if d.NoAttach {
		return nil, status.Error(codes.Unimplemented, "")
	}
	if in.GetAttach() == nil { // before anything else, like the real daemon
		return nil, d.speaks.noAttachInfo()
	}
	return call(d, "Attach", in, func() (*gobpfman.AttachResponse, error) {
		p := d.programs[in.GetId()]
		if p == nil {
			return nil, d.speaks.noProgram(in.GetId())
		}
		link := d.speaks.link(d)
		p.attach[link] = clone(in.GetAttach())
		p.info.Links = append(p.info.Links, link)
		return &gobpfman.AttachResponse{LinkId: link}, nil
	})
}

// Detach implements gobpfman.BpfmanClient.
func (d *Daemon) Detach(_ context.Context, in *gobpfman.DetachRequest, _ ...grpc.CallOption) (*gobpfman.DetachResponse, error) {
	return call(d, "Detach", in, func() (*gobpfman.DetachResponse, error) {
		for _, p := range d.programs {
			if i := slices.Index(p.info.GetLinks(), in.GetLinkId()); i >= 0 {
				p.info.Links = slices.Delete(p.info.Links, i, i+1)
				delete(p.attach, in.GetLinkId())
				return &gobpfman.DetachResponse{}, nil
			}
		}
		return nil, d.speaks.noLink(in.GetLinkId())
	})
}

// List implements gobpfman.BpfmanClient.
func (d *Daemon) List(_ context.Context, in *gobpfman.ListRequest, _ ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	return call(d, "List", in, func() (*gobpfman.ListResponse, error) {
		if err := d.speaks.checkList(in); err != nil {
			return nil, err
		}
		out := &gobpfman.ListResponse{}
		for _, id := range slices.Sorted(maps.Keys(d.programs)) {
			p := d.programs[id]
			if !matches(p.info.GetMetadata(), in.GetMatchMetadata()) {
				continue
			}
			out.Results = append(out.Results, d.speaks.listed(&gobpfman.ListResponse_ListResult{Info: clone(p.info), KernelInfo: clone(p.kernel)}))
		}
		return out, nil
	})
}

func matches(metadata, wanted map[string]string) bool {
	for k, v := range wanted {
		if metadata[k] != v {
			return false
		}
	}
	return true
}

// PullBytecode implements gobpfman.BpfmanClient.
func (d *Daemon) PullBytecode(_ context.Context, in *gobpfman.PullBytecodeRequest, _ ...grpc.CallOption) (*gobpfman.PullBytecodeResponse, error) {
	return call(d, "PullBytecode", in, func() (*gobpfman.PullBytecodeResponse, error) { return &gobpfman.PullBytecodeResponse{}, nil })
}

// Get implements gobpfman.BpfmanClient.
func (d *Daemon) Get(_ context.Context, in *gobpfman.GetRequest, _ ...grpc.CallOption) (*gobpfman.GetResponse, error) {
	return call(d, "Get", in, func() (*gobpfman.GetResponse, error) {
		p := d.programs[in.GetId()]
		if p == nil {
			return nil, d.speaks.noProgram(in.GetId())
		}
		return &gobpfman.GetResponse{Info: clone(p.info), KernelInfo: clone(p.kernel)}, nil
	})
}

// Calls returns the names of the calls since it was last called.
func (d *Daemon) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// SetLoadedAt sets the load time of the programs that are loaded from now on, as a step of the clock does.
func (d *Daemon) SetLoadedAt(loadedAt string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.LoadedAt = loadedAt
}

// Reset removes all programs and their pins, as a reboot does. IDs start again, and programs have the next load time.
func (d *Daemon) Reset(loadedAt string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.programs, d.last, d.LoadedAt, d.seen = map[uint32]*program{}, firstID, loadedAt, nil
	return os.RemoveAll(filepath.Join(d.Root, d.MapsRoot))
}

// Loaded is a program as tests see it.
type Loaded struct {
	ID       uint32
	Function string
	Metadata map[string]string
	File     string // the path of the object that was loaded
	Pins     string // the directory of its maps' pins
	MapIDs   []uint32
	LoadedAt string
	// GlobalData are the globals of the Load.
	GlobalData map[string][]byte
	Links      []*gobpfman.AttachInfo
	LinkIDs    []uint32 // of the Links
}

// Programs returns all programs, by ascending ID. Don't change them: callers share them, because the simulation asks each second.
func (d *Daemon) Programs() []Loaded {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen != nil {
		return d.seen
	}
	out := make([]Loaded, 0, len(d.programs))
	for _, id := range slices.Sorted(maps.Keys(d.programs)) {
		p := d.programs[id]
		l := Loaded{
			ID: id, Function: p.info.GetName(), Metadata: p.info.GetMetadata(), File: p.info.GetBytecode().GetFile(),
			Pins: p.info.GetMapPinPath(), MapIDs: p.kernel.GetMapIds(), LoadedAt: p.kernel.GetLoadedAt(),
			GlobalData: p.info.GetGlobalData(), LinkIDs: slices.Sorted(maps.Keys(p.attach)),
		}
		for _, link := range l.LinkIDs {
			l.Links = append(l.Links, clone(p.attach[link]))
		}
		out = append(out, l)
	}
	d.seen = out
	return out
}

func clone[M proto.Message](m M) M {
	return proto.CloneOf(m)
}
