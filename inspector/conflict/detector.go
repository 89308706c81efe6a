// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflict

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/conflicts"
)

// Cluster is the API server, as a Detector uses it.
type Cluster interface {
	// Reports returns the reports about this node's objects.
	Reports(ctx context.Context) ([]Report, error)
	// Announced returns the conflicts in this node's BpfNode, for which Events already exist.
	Announced(ctx context.Context) ([]v1alpha1.BpfNodeConflict, error)
	// Warn emits an Event about a conflict on the affected object.
	Warn(ctx context.Context, owner v1alpha1.BpfNodeOwner, uid types.UID, conflict v1alpha1.BpfNodeConflict) error
}

const (
	// patience bounds all requests to the API server in one round.
	patience = 10 * time.Second
	// reporting is the time after a change within which the agent updates its reports.
	reporting = 10 * time.Second
	// stale is how long reports are used while nothing changes, with a random deviation
	// of up to a half. The API server has to filter the reports of all nodes to find
	// those of one.
	stale = time.Hour
	// maxTroubles limits the number of Events in one round.
	maxTroubles = 10
)

// Detector finds conflicts in each round, and emits one Event for each. It isn't safe
// for concurrent use.
type Detector struct {
	Cluster Cluster
	Log     *slog.Logger
	// Now returns the current time, as time.Now does.
	Now func() time.Time

	reports []Report
	unread  error
	// hooks is the state for which the reports were read. again is when to read them
	// again.
	hooks string
	again time.Time
	// late means that the reports were read immediately after a change, before the agent
	// could update them.
	late bool

	recalled bool
	told     map[string]bool
}

// Conflicts is the function that an inspector calls in each round.
func (d *Detector) Conflicts(ctx context.Context, status *v1alpha1.BpfNodeStatus) ([]v1alpha1.BpfNodeConflict, []metav1.Condition) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !NeedsReports(status) {
		d.reports, d.unread, d.hooks = nil, nil, ""
	} else {
		d.read(ctx, hooks(status))
	}
	found := Find(status, d.reports)
	d.warn(ctx, found, status.Programs)
	return found, Conditions(found, d.unread)
}

// hooks returns a text that changes when other reports can matter: it contains bpfman's
// programs, and the hooks of other programs at which bpfman's programs could be
// attached.
func hooks(status *v1alpha1.BpfNodeStatus) string {
	var all strings.Builder
	for i := range status.Programs {
		program := &status.Programs[i]
		for _, point := range program.AttachPoints {
			if program.Bpfman || point.Type == "xdp" {
				fmt.Fprintf(&all, "%d %s %d\n", program.ID, hookOf(point), point.LinkID)
			}
		}
		if program.Bpfman {
			fmt.Fprintf(&all, "%d\n", program.ID)
		}
	}
	return all.String()
}

// read updates the reports: immediately after a change, again after the agent has had
// time to report, and rarely otherwise.
func (d *Detector) read(ctx context.Context, hooks string) {
	now := d.Now()
	switch {
	case hooks != d.hooks:
		d.late = true
	case now.Before(d.again):
		return
	default:
		d.late = false
	}
	reports, err := d.Cluster.Reports(ctx)
	if d.unread = err; err != nil {
		d.again = now.Add(reporting)
		d.hooks = hooks
		return
	}
	d.reports, d.hooks = reports, hooks
	d.again = now.Add(stale/2 + rand.N(stale)) //nolint:gosec // the jitter needs no security
	if d.late {
		d.again = now.Add(reporting)
	}
}

// Key identifies a conflict of a node. A message is a part of it only up to who holds the
// programs, which changes while the conflict stays.
func Key(c v1alpha1.BpfNodeConflict) string {
	about := fmt.Sprintf("%s %d", c.Type, c.ProgramID)
	if c.Owner != nil {
		about += " " + c.Owner.String()
	}
	if c.ProgramID == 0 {
		what, _, _ := strings.Cut(c.Message, mostOfThem)
		about += " " + what
	}
	return about
}

// warn emits Events about new conflicts of programs.
func (d *Detector) warn(ctx context.Context, found []v1alpha1.BpfNodeConflict, programs []v1alpha1.BpfNodeProgram) {
	if !d.recalled {
		told, err := d.Cluster.Announced(ctx)
		if err != nil {
			d.Log.Error("Failed to read the conflicts that were reported before", "error", err)
			return
		}
		d.recalled, d.told = true, map[string]bool{}
		for _, c := range told {
			d.told[Key(c)] = true
		}
	}
	var untold []v1alpha1.BpfNodeConflict
	told, known := map[string]bool{}, map[string]bool{}
	for _, c := range found {
		k := Key(c)
		if d.told[k] {
			told[k] = true
		} else if !known[k] {
			untold = append(untold, c)
		}
		known[k] = true
	}
	for _, c := range conflicts.First(untold, maxTroubles, programs) {
		told[Key(c)] = d.tell(ctx, c)
	}
	d.told = told
}

// tell emits an Event, and reports whether it succeeded.
func (d *Detector) tell(ctx context.Context, c v1alpha1.BpfNodeConflict) bool {
	if c.Owner == nil {
		d.Log.Warn("Found a conflict", "type", c.Type, "message", c.Message)
		return true
	}
	uid := types.UID("")
	if i := slices.IndexFunc(d.reports, func(r Report) bool { return r.Owner == *c.Owner }); i >= 0 {
		uid = d.reports[i].UID
	}
	if err := d.Cluster.Warn(ctx, *c.Owner, uid, c); err != nil {
		d.Log.Error("Failed to emit an Event about a conflict; retrying", "error", err)
		return false
	}
	d.Log.Warn("Found a conflict", "type", c.Type, "message", c.Message)
	return true
}
