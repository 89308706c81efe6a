// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflict

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// cluster is a Cluster that records calls.
type cluster struct {
	reports []Report
	told    []v1alpha1.BpfNodeConflict
	err     error

	asked  int
	warned []string
}

func (c *cluster) Reports(context.Context) ([]Report, error) {
	c.asked++
	return c.reports, c.err
}

func (c *cluster) Announced(context.Context) ([]v1alpha1.BpfNodeConflict, error) {
	return c.told, c.err
}

func (c *cluster) Warn(_ context.Context, owner v1alpha1.BpfNodeOwner, uid types.UID, found v1alpha1.BpfNodeConflict) error {
	if c.err == nil {
		c.warned = append(c.warned, owner.String()+" "+string(uid)+" "+found.Type)
	}
	return c.err
}

// detector is a detector whose clock the test controls.
type detector struct {
	Detector

	cluster *cluster
	now     time.Time
}

func newDetector() *detector {
	d := &detector{cluster: &cluster{}, now: time.Unix(1, 0)}
	d.Detector = Detector{Cluster: d.cluster, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return d.now }}
	return d
}

func (d *detector) look(t *testing.T, later time.Duration, programs ...v1alpha1.BpfNodeProgram) []v1alpha1.BpfNodeConflict {
	t.Helper()
	d.now = d.now.Add(later)
	conflicts, conditions := d.Conflicts(t.Context(), &v1alpha1.BpfNodeStatus{Programs: programs})
	if len(conditions) != len(Types) {
		t.Errorf("conditions %+v", conditions)
	}
	return conflicts
}

func TestReportsAreAskedForRarely(t *testing.T) {
	d := newDetector()
	asked := func(want int) {
		t.Helper()
		if d.cluster.asked != want {
			t.Errorf("asked %d times, want %d", d.cluster.asked, want)
		}
	}
	d.look(t, 0, ours(1, "count", &flows, "tcx/ingress eth0 1"))
	asked(0)
	lb := foreign(5, "lb", cilium, "xdp eth0")
	d.look(t, time.Minute, lb)
	asked(1)
	d.look(t, time.Second, lb)
	asked(1)
	// By now, the agent can have reported the change.
	d.cluster.reports = []Report{report(drop, "xdp", "eth0")}
	if found := d.look(t, reporting, lb); len(found) != 1 {
		t.Errorf("conflicts %+v", found)
	}
	asked(2)
	for range 25 {
		d.look(t, time.Minute, lb)
	}
	asked(2)
	d.look(t, 2*stale, lb)
	asked(3)
	d.look(t, time.Second, lb, ours(6, "new", &drop))
	asked(4)
	// An API server that doesn't respond isn't called in each round, and the known
	// reports stay.
	d.cluster.err = errors.New("no answer")
	if found := d.look(t, reporting, lb, ours(6, "new", &drop)); len(found) != 1 {
		t.Errorf("conflicts %+v", found)
	}
	d.look(t, time.Second, lb, ours(6, "new", &drop))
	asked(5)
}

func TestEachConflictIsToldOfOnce(t *testing.T) {
	d := newDetector()
	d.cluster.reports = []Report{report(drop, "xdp", "eth0")}
	lb, stray := foreign(5, "lb", cilium, "xdp eth0"), ours(7, "stray", nil)
	told := func(want ...string) {
		t.Helper()
		if !slices.Equal(d.cluster.warned, want) {
			t.Errorf("told %q, want %q", d.cluster.warned, want)
		}
		d.cluster.warned = nil
	}
	d.cluster.err = errors.New("no answer")
	d.look(t, 0, lb, stray)
	d.cluster.err = nil
	d.look(t, reporting, lb, stray)
	told("XdpProgram drop 1 ForeignXDP")
	lb.Holders = nil // the message changes
	d.look(t, time.Minute, lb, stray)
	told()
	d.look(t, time.Minute)
	d.look(t, time.Minute, lb)
	told("XdpProgram drop 1 ForeignXDP")
	// Another program is another conflict.
	d.look(t, time.Minute, foreign(8, "lb", nil, "xdp eth0"))
	told("XdpProgram drop 1 ForeignXDP")

	again := newDetector()
	again.cluster.reports = d.cluster.reports
	again.cluster.told = []v1alpha1.BpfNodeConflict{{Type: v1alpha1.BpfNodeForeignXDP, ProgramID: 8, Owner: &drop}}
	again.look(t, 0, foreign(8, "lb", nil, "xdp eth0"))
	if len(again.cluster.warned) > 0 {
		t.Errorf("told again after a restart: %q", again.cluster.warned)
	}
}

func TestEventsOfOneLookAreBounded(t *testing.T) {
	d := newDetector()
	for i := range 25 {
		owner := drop
		owner.Name += string(rune('a' + i))
		d.cluster.reports = append(d.cluster.reports, report(owner, "xdp", "eth0"))
	}
	lb := foreign(5, "lb", cilium, "xdp eth0")
	for _, want := range []int{10, 20, 25, 25} {
		d.look(t, time.Minute, lb)
		if len(d.cluster.warned) != want {
			t.Errorf("%d Events, want %d", len(d.cluster.warned), want)
		}
	}
}

// Many conflicts of the objects of one namespace delay neither the Events of others of the same type, nor those of other types.
func TestEventsOfOneLookAreShared(t *testing.T) {
	d := newDetector()
	for i := range 25 {
		owner := drop
		owner.Namespace, owner.Name = "tenant", owner.Name+string(rune('a'+i))
		d.cluster.reports = append(d.cluster.reports, report(owner, "xdp", "eth0"))
	}
	other := drop
	other.Namespace = "other"
	d.cluster.reports = append(d.cluster.reports, report(other, "xdp", "eth0"))
	found := d.look(t, time.Minute, foreign(5, "lb", cilium, "xdp eth0"), ours(7, "stray", nil))
	if len(found) != 27 || len(d.cluster.warned) != 9 || !slices.Contains(d.cluster.warned, other.String()+" 1 "+v1alpha1.BpfNodeForeignXDP) {
		t.Errorf("of %d conflicts, told %q", len(found), d.cluster.warned) // the tenth is about no object
	}
}
