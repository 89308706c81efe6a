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
)

// Cluster is what a Detector asks of the API server, and tells.
type Cluster interface {
	// Reports are those of this node's objects.
	Reports(ctx context.Context) ([]Report, error)
	// Told are the conflicts that this node's BpfNode has, of which Events told.
	Told(ctx context.Context) ([]v1alpha1.BpfNodeConflict, error)
	// Warn tells of a conflict in an Event on the object concerned.
	Warn(ctx context.Context, owner v1alpha1.BpfNodeOwner, uid types.UID, conflict v1alpha1.BpfNodeConflict) error
}

const (
	// patience is for all that one look asks of the API server.
	patience = 10 * time.Second
	// reporting is how long after a change the agent's reports may tell of it.
	reporting = 10 * time.Second
	// stale is how long reports are taken for what they are while nothing has changed;
	// half of it more or less. The API server looks at all nodes' reports to find one's.
	stale = time.Hour
	// maxTroubles bounds the Events of one look.
	maxTroubles = 10
)

// Detector finds conflicts look by look, and warns once of each. It is for one
// goroutine.
type Detector struct {
	Cluster Cluster
	Log     *slog.Logger
	// Now is time.Now.
	Now func() time.Time

	reports []Report
	unread  error
	// hooks is what the reports were asked for; again is when to ask again.
	hooks string
	again time.Time
	// late tells that the reports were asked for as soon as something had changed.
	late bool

	recalled bool
	told     map[string]bool
}

// Conflicts is what an inspector asks at each look.
func (d *Detector) Conflicts(ctx context.Context, status *v1alpha1.BpfNodeStatus) ([]v1alpha1.BpfNodeConflict, []metav1.Condition) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !NeedsReports(status) {
		d.reports, d.unread, d.hooks = nil, nil, ""
	} else {
		d.read(ctx, hooks(status))
	}
	conflicts := Find(status, d.reports)
	d.warn(ctx, conflicts)
	return conflicts, Conditions(conflicts, d.unread)
}

// hooks tells apart what makes other reports: which programs bpfman has, and which
// others have what bpfman's may want.
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

// read brings the reports up to date: when something has changed, once more when the
// agent has told of that, and rarely otherwise.
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
	d.again = now.Add(stale/2 + rand.N(stale)) //nolint:gosec // scattered, not secret
	if d.late {
		d.again = now.Add(reporting)
	}
}

// key tells conflicts apart. Messages name what changes rarely.
func key(c v1alpha1.BpfNodeConflict) string {
	about := fmt.Sprintf("%s %d", c.Type, c.ProgramID)
	if c.Owner != nil {
		about += " " + c.Owner.String()
	}
	if c.ProgramID == 0 {
		about += " " + c.Message
	}
	return about
}

// warn tells of conflicts that are new.
func (d *Detector) warn(ctx context.Context, conflicts []v1alpha1.BpfNodeConflict) {
	if !d.recalled {
		told, err := d.Cluster.Told(ctx)
		if err != nil {
			d.Log.Error("Failed to read the conflicts that were reported before", "error", err)
			return
		}
		d.recalled, d.told = true, map[string]bool{}
		for _, c := range told {
			d.told[key(c)] = true
		}
	}
	told, warned := map[string]bool{}, 0
	for _, c := range conflicts {
		switch k := key(c); {
		case d.told[k]:
			told[k] = true
		case told[k]:
		case warned == maxTroubles:
		default:
			warned++
			told[k] = d.tell(ctx, c)
		}
	}
	d.told = told
}

// tell tells whether that is done.
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
