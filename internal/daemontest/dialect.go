// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemontest

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// dialect is what the daemons answer differently.
type dialect interface {
	checkLoad(*Daemon, *gobpfman.LoadRequest) error
	checkList(*gobpfman.ListRequest) error
	// mapsOf returns the maps of a program. The earlier ones are those of the function before it in the Load, or nil.
	mapsOf(id uint32, earlier []uint32) []uint32
	// sharesWithOwner reports whether programs really use the maps of their map owner.
	sharesWithOwner(*Daemon) bool
	time(inRust string) string
	link(*Daemon) uint32
	listed(*gobpfman.ListResponse_ListResult) *gobpfman.ListResponse_ListResult
	noProgram(uint32) error
	noLink(uint32) error
	noAttachInfo() error
}

// rust is the daemon of v0.6.0.
type rust struct{}

func aborted(format string, args ...any) error {
	return status.Errorf(codes.Aborted, format, args...)
}

func (rust) checkLoad(d *Daemon, in *gobpfman.LoadRequest) error {
	switch {
	case slices.ContainsFunc(in.GetInfo(), func(f *gobpfman.LoadInfo) bool { return f.GetProgramType() == gobpfman.BpfmanProgramType_LSM }):
		return aborted("LSM")
	case namesTwice(in.GetInfo()):
		return aborted("AlreadyLoaded")
	case in.MapOwnerId != nil && d.programs[in.GetMapOwnerId()] == nil:
		return aborted("map_owner_id does not exist")
	}
	return nil
}

func (rust) checkList(*gobpfman.ListRequest) error { return nil }

func (rust) mapsOf(id uint32, earlier []uint32) []uint32 {
	if earlier != nil {
		return earlier
	}
	return []uint32{1000 + id}
}

func (rust) sharesWithOwner(d *Daemon) bool { return d.PinnedByName }

func (rust) time(t string) string { return t }

func (rust) link(d *Daemon) uint32 {
	d.last++
	return d.last
}

func (rust) listed(r *gobpfman.ListResponse_ListResult) *gobpfman.ListResponse_ListResult { return r }

func (rust) noProgram(id uint32) error {
	return aborted("Program %d does not exist or was not created by bpfman", id)
}

func (rust) noLink(id uint32) error {
	return aborted("Database entry type does not exist in tree %q", fmt.Sprintf("link_%d", id))
}

func (rust) noAttachInfo() error { return aborted("missing attach_info") }

// golang is the daemon in Go.
type golang struct{}

// NewGo returns a daemon in Go without programs. All objects have one map, "counter".
func NewGo(root string) *Daemon {
	d := New(root)
	d.speaks = golang{}
	return d
}

// checkLoad refuses a map owner that uses another program's maps itself.
func (golang) checkLoad(d *Daemon, in *gobpfman.LoadRequest) error {
	if owner := d.programs[in.GetMapOwnerId()]; in.MapOwnerId != nil && (owner == nil || owner.info.MapOwnerId != nil) {
		return status.Errorf(codes.InvalidArgument, "map_owner_id %d does not exist: map owner not found", in.GetMapOwnerId())
	}
	return nil
}

func (golang) checkList(in *gobpfman.ListRequest) error {
	if _, known := gobpfman.BpfmanProgramType_name[int32(in.GetProgramType())]; !known { //nolint:gosec // it is small
		return status.Errorf(codes.InvalidArgument, "invalid program type: %d", in.GetProgramType())
	}
	return nil
}

func (golang) mapsOf(id uint32, _ []uint32) []uint32 { return []uint32{1000 + id} }

func (golang) sharesWithOwner(*Daemon) bool { return true }

func (golang) time(t string) string { return strings.Replace(t, "+0000", "Z", 1) }

func (golang) link(d *Daemon) uint32 {
	d.lastLink++
	return d.lastLink
}

func (golang) listed(r *gobpfman.ListResponse_ListResult) *gobpfman.ListResponse_ListResult {
	r.Info.Links = nil
	return r
}

func (golang) noProgram(id uint32) error {
	return status.Errorf(codes.NotFound, "program with ID %d not found", id)
}

func (golang) noLink(id uint32) error {
	return status.Errorf(codes.NotFound, "link %d does not exist", id)
}

func (golang) noAttachInfo() error {
	return status.Error(codes.InvalidArgument, "attach info is required")
}
