// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// The daemon in Go only reports the links of a program if it is asked about this program. An answer takes longer the more
// programs there are: 7 ms with 400, and 20 ms with 1,400. So the answers are kept. The agent's own calls change them. What
// others change is seen when a program is asked about again, in turn: each list has some time for that, which is enough for
// all programs unless there are hundreds.

const (
	// askFor is how long a list asks about programs whose links aren't known. It leaves the list itself some of callDeadline.
	askFor = 15 * time.Second
	// askAgainFor is how long a list asks about programs in total before it leaves the others for later lists.
	askAgainFor = time.Second
)

// errUnfinished is the result of a list that took too long. The answers are kept, so the next one goes on.
var errUnfinished = refuse(problem.DaemonBusy, codes.Unknown, "the daemon has many programs, and is being asked about each one")

func (g *golang) list(ctx context.Context, rpc gobpfman.BpfmanClient, pinned []uint32) (*gobpfman.ListResponse, error) {
	list, err := rpc.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: new(true)})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller adds context
	}
	g.seeAll(list)
	all := g.doubt(pinned)
	began := time.Now()
	for _, id := range g.inTurn() {
		known, took := g.isKnown(id), time.Since(began)
		if known && took >= askAgainFor {
			break
		}
		if took >= askFor {
			return nil, errUnfinished
		}
		if err := g.ask(ctx, rpc, id); err != nil {
			return nil, err
		}
	}
	return g.complete(list, pinned, all), nil
}

// seeAll records the programs of a list.
func (g *golang) seeAll(list *gobpfman.ListResponse) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.seen
	g.seen = map[uint32]*seenProgram{}
	for _, result := range list.GetResults() {
		g.see(before, result.GetInfo(), result.GetKernelInfo())
	}
}

// doubt makes all links unknown if one is pinned that no program is known to have: others have attached it, or a daemon that
// was killed left it, and what was left is removed. It reports whether all programs are being asked about for that reason.
func (g *golang) doubt(pinned []uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(slices.Collect(maps.Values(g.seen)), func(p *seenProgram) bool { return !p.asked.IsZero() && p.asked.Before(g.doubted) }) {
		return true // it isn't finished
	}
	unexplained := g.unexplained(pinned)
	maps.DeleteFunc(unexplained, func(link uint32, _ bool) bool { return g.strangers[link] })
	if len(unexplained) > 0 {
		g.doubted = time.Now()
	}
	return len(unexplained) > 0
}

// unexplained returns the pinned links that no program is known to have.
func (g *golang) unexplained(pinned []uint32) map[uint32]bool {
	links := map[uint32]bool{}
	for _, link := range pinned {
		links[link] = true
	}
	for _, p := range g.seen {
		for _, link := range p.links {
			delete(links, link)
		}
	}
	return links
}

// inTurn returns the programs in the order in which they are asked about: those with unknown links first, and then those with
// the oldest answers.
func (g *golang) inTurn() []uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.seen), func(a, b uint32) int { return g.seen[a].asked.Compare(g.seen[b].asked) })
}

func (g *golang) isKnown(id uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.seen[id]
	return !p.asked.IsZero() && !p.asked.Before(g.doubted)
}

// ask asks about the links of a program.
func (g *golang) ask(ctx context.Context, rpc gobpfman.BpfmanClient, id uint32) error {
	asked := time.Now()
	got, err := rpc.Get(ctx, &gobpfman.GetRequest{Id: id})
	g.mu.Lock()
	defer g.mu.Unlock()
	switch status.Code(err) {
	case codes.OK:
		g.seen[id].links, g.seen[id].asked = got.GetInfo().GetLinks(), asked
	case codes.NotFound: // it was unloaded
		delete(g.seen, id)
	default:
		// Internal is also the answer about a program that isn't in the kernel anymore, but the next List doesn't have
		// that. Of one that isn't listed, the pins would be removed.
		return err //nolint:wrapcheck // the caller adds context
	}
	return nil
}

// complete adds what is known to a list. All means that all programs were asked about, so that the links that no program
// has are known.
func (g *golang) complete(list *gobpfman.ListResponse, pinned []uint32, all bool) *gobpfman.ListResponse {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all {
		g.strangers = g.unexplained(pinned)
	}
	complete := &gobpfman.ListResponse{}
	for _, result := range list.GetResults() {
		id := result.GetKernelInfo().GetId()
		if seen, still := g.seen[id]; still {
			result.Info.Links, result.Info.MapUsedBy = slices.Clone(seen.links), g.users(id)
			complete.Results = append(complete.Results, result)
		}
	}
	return complete
}

func (g *golang) attach(ctx context.Context, rpc gobpfman.BpfmanClient, request *gobpfman.AttachRequest) (*gobpfman.AttachResponse, error) {
	response, err := rpc.Attach(ctx, request)
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, seen := g.seen[request.GetId()]; seen {
		p.change(err, func() { p.links = append(p.links, response.GetLinkId()) })
	}
	return response, err //nolint:wrapcheck // the caller adds context
}

func (g *golang) detach(ctx context.Context, rpc gobpfman.BpfmanClient, link uint32) error {
	_, err := rpc.Detach(ctx, &gobpfman.DetachRequest{LinkId: link})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.seen {
		if n := slices.Index(p.links, link); n >= 0 {
			p.change(err, func() { p.links = slices.Delete(p.links, n, n+1) })
		}
	}
	return err //nolint:wrapcheck // the caller adds context
}

// change records a call that changes a program's links. After a failure, the daemon has to be asked.
func (p *seenProgram) change(err error, succeeded func()) {
	if err != nil {
		p.asked = time.Time{}
		return
	}
	succeeded()
}

// attach attaches a program, unless the process that the attach point refers to has ended. If it has ended when the daemon
// has attached, the daemon may have used another process that got its PID.
func (i *Inventory) attach(ctx context.Context, d dialect, id uint32, point program.AttachPoint) (*gobpfman.AttachResponse, error) {
	if err := i.check(point.Process); err != nil {
		return nil, err
	}
	attached, err := d.attach(withProcess(ctx, point.Process), i.rpc, &gobpfman.AttachRequest{Id: id, Attach: point.Info})
	if err != nil {
		return nil, err
	}
	ended := i.check(point.Process)
	if ended == nil {
		return attached, nil
	}
	if err := i.detach(ctx, d, attached.GetLinkId()); err != nil {
		// This code has the daemon's links listed. Those of no attach point are detached.
		return nil, &refusedError{problem.Of(ended), status.Newf(codes.Unknown, "%s; detach link %d: %v", status.Convert(ended).Message(), attached.GetLinkId(), err)}
	}
	return nil, ended
}

// check returns the status of a refusal if a process has ended.
func (i *Inventory) check(process *program.Process) error {
	if process == nil || i.Check == nil {
		return nil
	}
	if err := i.Check(*process); err != nil {
		return &refusedError{problem.Of(err), status.New(codes.FailedPrecondition, err.Error())}
	}
	return nil
}
