// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
)

// Programs of v0.5 are kept until every object is attached: while an object isn't, while objects can't be read, and while the
// daemon doesn't answer. Kinds without objects don't matter.
func TestWhatHoldsUpTheRetirement(t *testing.T) {
	for name, c := range map[string]struct {
		forbidden   string // resource
		notAttached bool
		want        string
	}{
		"all is attached":           {},
		"an object isn't attached":  {notAttached: true, want: "TcxProgram/net"},
		"a kind that can't be read": {forbidden: "xdpprograms", want: "XdpPrograms can't be read: look for xdpprograms: unknown (get xdpprograms.bpfman.io)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}, forbidden: c.forbidden}
				h, stop := startController(t, server, nil)
				defer stop()
				attached := func(context.Context, program.Key) bool { return !c.notAttached }
				r := retirement{cluster: h.Cluster, inventory: daemon.NewInventory(h.daemon, h.daemon.Root), attached: attached}
				if got := r.unattached(t.Context()); got != "the daemon doesn't answer" {
					t.Errorf("at the start: %q", got)
				}
				r.inventory = h.Inventory
				within(t, time.Minute, "attached", func() bool { return h.links() == 1 })
				if got := r.unattached(t.Context()); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}
