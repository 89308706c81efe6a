// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// golang is the daemon in Go. Its refusals have codes. It doesn't list links (links.go), and each function of a Load has maps
// of its own, unless a map owner is named: that really shares maps.
type golang struct {
	mu sync.Mutex
	// seen contains the listed programs by ID.
	seen map[uint32]*seenProgram
	// doubted is when the known links were last found to be incomplete. Earlier answers have to be repeated.
	doubted time.Time
	// strangers are the pinned links that no program had when all were asked.
	strangers map[uint32]bool
}

type seenProgram struct {
	// links are those of the program. They were asked for at asked, which is zero if they aren't known.
	links []uint32
	asked time.Time
	tag   string
	// loadedAt is the load time when the program was first seen.
	loadedAt string
	// mapOwner is the map owner that its Load named, or itself.
	mapOwner uint32
	// mapsOf is the program whose directory has the maps.
	mapsOf uint32
}

func newGolang() *golang { return &golang{seen: map[uint32]*seenProgram{}} }

// metadataMapOwner is the key of the metadata of a program that uses the maps of another one. The value is the map owner
// that the Load named, or "" if the other one is a function of the same Load.
const metadataMapOwner = "bpfman.io/map-owner"

// rollBackWithin bounds how long it takes to unload what a Load has loaded before it failed.
const rollBackWithin = 10 * time.Second

// pinsBeforeItLists is true: a list needs no lock, and a Load is only in the database when all of its programs are pinned.
func (*golang) pinsBeforeItLists() bool { return true }

func (*golang) database() string { return "/run/bpfman/.lock" }

// admits no uprobe of a namespaced object in a container. The daemon opens the target there itself, while it holds its
// lock. If that is a named pipe, it waits for a writer, and not even killing it ends that. Who can write in the container
// can replace the target at any time, so nobody can check it before.
func (*golang) admits(owner program.Key, info *gobpfman.AttachInfo) error {
	if owner.Namespace == "" || info.GetUprobeAttachInfo().GetContainerPid() == 0 {
		return nil
	}
	return refuse(problem.UprobeNeedsRust, codes.FailedPrecondition, "with the daemon in Go, namespaced uprobes aren't attached, "+
		"because a named pipe in the container would block the daemon for good")
}

// tolerance is by how much the load time of a program can differ between two agents, because the daemon computes it from the
// time of the node's start, which moves when the clock is set. No node starts again, and loads a program, within this time.
const tolerance = 5 * time.Second

func (*golang) loadedTogether(a, b string) bool {
	at, err := time.Parse(loadTime, a)
	other, otherErr := time.Parse(loadTime, b)
	return err == nil && otherErr == nil && at.Sub(other).Abs() <= tolerance
}

func (*golang) sharesVariables() bool { return false }

func (*golang) pinsInSysfs() bool { return false }

// see records a program, gives it the load time that it had when it was first seen, and the map owner that its Load
// named. The daemon computes load times from the time of the node's start, which moves when the clock is set.
func (g *golang) see(before map[uint32]*seenProgram, info *gobpfman.ProgramInfo, kernel *gobpfman.KernelProgramInfo) {
	id := kernel.GetId()
	if at, err := time.Parse(time.RFC3339, kernel.GetLoadedAt()); err == nil {
		kernel.LoadedAt = at.UTC().Format(loadTime)
	}
	seen := &seenProgram{tag: kernel.GetTag(), mapOwner: id, mapsOf: id}
	if earlier, found := before[id]; found && earlier.tag == seen.tag {
		kernel.LoadedAt = earlier.loadedAt
		seen.links, seen.asked = earlier.links, earlier.asked
	}
	seen.loadedAt = kernel.GetLoadedAt()
	if named, uses := info.GetMetadata()[metadataMapOwner]; uses {
		info.MapOwnerId = nil
		if owner, err := strconv.ParseUint(named, 10, 32); err == nil {
			info.MapOwnerId = new(uint32(owner))
		}
	}
	if info.MapOwnerId != nil {
		seen.mapOwner = info.GetMapOwnerId()
	}
	if owner, ok := idOf(info.GetMapPinPath()); ok {
		seen.mapsOf = owner
	}
	g.seen[id] = seen
}

// users returns the programs that have the same map owner as a program, with itself. The daemon doesn't distinguish them
// from other functions of the same Load.
func (g *golang) users(id uint32) []string {
	var users []string
	for other, seen := range g.seen {
		if seen.mapOwner == g.seen[id].mapOwner {
			users = append(users, decimal(other))
		}
	}
	slices.Sort(users)
	return users
}

// load loads the functions one after another. The first one has the maps, and the others use them.
func (g *golang) load(ctx context.Context, rpc gobpfman.BpfmanClient, request *gobpfman.LoadRequest) (*gobpfman.LoadResponse, error) {
	if name := repeated(request.GetInfo()); name != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "function %s is named twice", name)
	}
	response := &gobpfman.LoadResponse{}
	for _, function := range request.GetInfo() {
		loaded, err := rpc.Load(ctx, g.part(request, function, response.GetPrograms()))
		if err != nil {
			return nil, g.rollBack(ctx, rpc, response.GetPrograms(), err)
		}
		response.Programs = append(response.Programs, loaded.GetPrograms()...)
	}
	if len(request.GetInfo()) == 0 {
		return rpc.Load(ctx, request) //nolint:wrapcheck // the caller adds context
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range response.GetPrograms() {
		g.see(nil, p.GetInfo(), p.GetKernelInfo())
		g.seen[p.GetKernelInfo().GetId()].asked = time.Now() // it has no links yet
	}
	for _, p := range response.GetPrograms() {
		p.Info.MapUsedBy = g.users(p.GetKernelInfo().GetId())
	}
	return response, nil
}

// part returns the request for one function of a Load, of which some are loaded.
func (g *golang) part(request *gobpfman.LoadRequest, function *gobpfman.LoadInfo, loaded []*gobpfman.LoadResponseInfo) *gobpfman.LoadRequest {
	part := proto.CloneOf(request)
	part.Info = []*gobpfman.LoadInfo{function}
	named := ""
	switch {
	case request.MapOwnerId != nil:
		named = decimal(request.GetMapOwnerId())
		part.MapOwnerId = new(g.mapsOf(request.GetMapOwnerId()))
	case len(loaded) > 0:
		part.MapOwnerId = &loaded[0].GetKernelInfo().Id
	default:
		return part
	}
	part.Metadata = maps.Clone(part.GetMetadata())
	if part.GetMetadata() == nil {
		part.Metadata = map[string]string{}
	}
	part.Metadata[metadataMapOwner] = named
	return part
}

// mapsOf returns the program whose directory has the maps of another one. The daemon accepts no other map owner.
func (g *golang) mapsOf(id uint32) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seen, known := g.seen[id]; known {
		return seen.mapsOf
	}
	return id
}

// rollBack unloads programs after a Load was refused, and returns the refusal. If that fails, or if it is unknown whether
// the daemon refused it, the code of the error isn't that of a refusal.
func (g *golang) rollBack(ctx context.Context, rpc gobpfman.BpfmanClient, loaded []*gobpfman.LoadResponseInfo, cause error) error {
	cause = g.refusal(cause)
	if uncertain(cause) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackWithin)
	defer cancel()
	for _, p := range slices.Backward(loaded) {
		if _, err := rpc.Unload(ctx, &gobpfman.UnloadRequest{Id: p.GetKernelInfo().GetId()}); err != nil {
			return status.Errorf(codes.Unknown, "%s; then it failed to unload function %s: %s", status.Convert(cause).Message(), p.GetInfo().GetName(), status.Convert(err).Message())
		}
	}
	return cause
}

// lasting matches the errors of the daemon in Go with code Internal about a Load that fails until the object, the
// kernel, or the daemon changes: the kernel refuses a program or a map, or the object lacks something.
var lasting = regexp.MustCompile(strings.Join([]string{
	`failed to load collection( spec)?: .*(permission denied|operation not permitted|invalid argument|argument list too long|not supported|errno 524|load BTF|bad magic|unexpected remaining)`,
	`program\(s\) not found in object file`,
	`global variable ".*" not found`,
	`set variable ".*"`,
	`program type mismatch`,
	`map spec is incompatible with existing map`,
}, "|"))

func (*golang) refusal(err error) error {
	s := status.Convert(err)
	message := quiet(s.Message())
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Unknown:
		return err
	case codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition:
		return status.Error(codes.FailedPrecondition, message)
	case codes.NotFound:
		return status.Error(codes.NotFound, message)
	case codes.Internal:
		if lasting.MatchString(message) {
			return status.Error(codes.FailedPrecondition, message)
		}
	default:
	}
	return status.Error(codes.Aborted, message)
}

func (*golang) gone(err error, _ object, _ uint32) bool { return status.Code(err) == codes.NotFound }

// loadTime is the format of load times.
const loadTime = "2006-01-02T15:04:05-0700"

func decimal(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// repeated returns the name of a function that is named twice, or "".
func repeated(functions []*gobpfman.LoadInfo) string {
	names := map[string]bool{}
	for _, f := range functions {
		if names[f.GetName()] {
			return f.GetName()
		}
		names[f.GetName()] = true
	}
	return ""
}
