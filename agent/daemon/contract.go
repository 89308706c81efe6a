// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// dialect is a daemon as the inventory relies on it. The supported daemons have one API, but give different answers.
// Each has one implementation, which makes its answers those that the methods describe. The rest of the agent doesn't
// know which daemon the node runs. tests/contract checks the same with the real daemons.
type dialect interface {
	// list returns the programs that the daemon manages, also those of others, with their links. The load time of a
	// program doesn't change while it is loaded. If there are too many programs for one call, the error is errUnfinished, and
	// the next call goes on. What others attach and detach can be missing in some lists, unless its ID is among the pinned
	// links.
	list(ctx context.Context, rpc gobpfman.BpfmanClient, pinned []uint32) (*gobpfman.ListResponse, error)
	// load loads all functions of a request or none. They share the maps of the object, or use those of the map owner.
	// sharesVariables says whether this includes the maps of global variables.
	load(context.Context, gobpfman.BpfmanClient, *gobpfman.LoadRequest) (*gobpfman.LoadResponse, error)
	// attach and detach make one call.
	attach(context.Context, gobpfman.BpfmanClient, *gobpfman.AttachRequest) (*gobpfman.AttachResponse, error)
	detach(ctx context.Context, rpc gobpfman.BpfmanClient, link uint32) error
	// admits returns a refusal of what must not be asked of the daemon for an owner, because the daemon might never
	// answer again.
	admits(program.Key, *gobpfman.AttachInfo) error
	// refusal returns a failure with the text for users, and with one of these codes. All other codes mean that it is
	// unknown whether the call took effect. The text is the same for equal failures.
	//
	//   - FailedPrecondition: a Load fails until the object, the kernel, or the daemon changes.
	//   - NotFound, Aborted: other refusals. Nothing has changed.
	refusal(error) error
	// gone reports whether a call failed because the daemon doesn't have the program or link with this ID.
	gone(err error, what object, id uint32) bool
	// pinsBeforeItLists reports whether a list can be made during a Load. What others load is pinned then, and not listed yet.
	pinsBeforeItLists() bool
	// database is the path of a file that the daemon writes when it creates its database, and never again.
	database() string
	// loadedTogether reports whether two load times, of programs with one ID, are those of one program. Kernels use IDs again
	// after a reboot.
	loadedTogether(a, b string) bool
	// sharesVariables reports whether the functions of a Load share their global variables, which are maps too.
	sharesVariables() bool
	// pinsInSysfs reports whether maps that objects pin by name are in /sys/fs/bpf, where nobody removes them.
	pinsInSysfs() bool
}

// databases are those of all daemons. Two can lie side by side, after the daemon was changed.
var databases = []string{rust{}.database(), newGolang().database()}

// object is what a call removes.
type object int

const (
	aProgram object = iota
	aLink
)

// dialectOf returns the dialect of a daemon. It keeps the known one, with what that remembers, if the daemon is the same.
func dialectOf(daemon bpfman.Implementation, known dialect) dialect {
	switch daemon {
	case bpfman.Go:
		if known, same := known.(*golang); same {
			return known
		}
		return newGolang()
	default:
		return rust{}
	}
}

// recognize returns the dialect of the daemon. It asks once for each connection. Otherwise, the daemon's list might be
// misread, and its errors wouldn't name the cause.
func (i *Inventory) recognize(ctx context.Context) (dialect, error) {
	i.mu.Lock()
	known, recognized := i.dialect, i.recognized
	i.mu.Unlock()
	if recognized != "" {
		return known, nil
	}
	daemon, err := bpfman.Recognize(ctx, i.rpc)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.recognized, i.dialect = daemon, dialectOf(daemon, known)
	logr.FromContextOrDiscard(ctx).Info("Recognized the daemon", "daemon", daemon)
	return i.dialect, nil
}

// PinsInSysfs reports whether the daemon pins maps by name in /sys/fs/bpf.
func (i *Inventory) PinsInSysfs() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dialect.pinsInSysfs()
}

// SharesVariables reports whether functions that are loaded together share their global variables.
func (i *Inventory) SharesVariables() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dialect.sharesVariables()
}

// Daemon returns which daemon the node runs, or "" before it has answered.
func (i *Inventory) Daemon() bpfman.Implementation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.recognized
}
