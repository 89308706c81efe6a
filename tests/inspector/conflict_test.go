// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
	inspected "github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// onLo attaches an XDP program to lo of the daemon's network.
var onLo = ofDaemon{
	"xdp_pass", "pass", gobpfman.BpfmanProgramType_XDP,
	&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{Priority: 50, Iface: "lo"}}},
	v1alpha1.BpfNodeAttachPoint{},
}

// wish is the report about an object that requests XDP on lo there, which isn't a pod's network
// in this test, and isn't attached.
var wish = conflict.Report{
	Owner: v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "drop"}, Type: "xdp",
	Links: []v1alpha1.BpfProgramLink{{AttachPoint: "lo in pod /", State: v1alpha1.LinkNotAttached}},
}

// TestConflictsOfXDP makes the real daemon refuse to attach a program, because another program is
// attached, or ten of its own.
func TestConflictsOfXDP(t *testing.T) {
	d := daemontest.Start(t)
	n := inspect(t)
	ask := asking(t, d)

	holder := start(t, d.Place, "xdp on lo")
	first := onLo.load(t, d)
	if err := attach(t, d, first); err == nil {
		t.Error("the daemon attached a program where another is")
	}
	n.awaitConflict(ask, v1alpha1.BpfNodeForeignXDP, holder.Programs[0],
		"XdpProgram drop can't be attached to interface lo in network namespace ", "because XDP program xdp_on_lo (", "held by process inspector.test")
	holder.end()
	n.await(holder.Programs[0], gone)

	ids := []uint32{first}
	for len(ids) < 10 {
		ids = append(ids, onLo.load(t, d))
	}
	for i, id := range ids {
		if err := attach(t, d, id); err != nil {
			t.Fatalf("attach program number %d: %v", i+1, err)
		}
	}
	if err := attach(t, d, onLo.load(t, d)); err == nil {
		t.Error("the daemon attached an eleventh program")
	}
	n.awaitConflict(ask, v1alpha1.BpfNodeDispatcherFull, 0,
		"XdpProgram drop isn't attached to xdp of interface lo in network namespace ", "bpfman's dispatcher there has 10 programs and no free slot")
}

func attach(t *testing.T, d *daemontest.Real, id uint32) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	_, err := d.Client.Attach(ctx, &gobpfman.AttachRequest{Id: id, Attach: onLo.attach})
	return err
}

// awaitConflict waits for the only conflict of a type, for a given program if it isn't 0.
func (n *node) awaitConflict(asked *inspected.Daemon, kind string, program uint32, words ...string) {
	n.t.Helper()
	n.learnOwners(asked)
	n.eventually(func() error {
		var found []v1alpha1.BpfNodeConflict
		for _, one := range conflict.Find(n.look(false), []conflict.Report{wish}) {
			if one.Type == kind {
				found = append(found, one)
			}
		}
		if len(found) == 1 && (program == 0 || found[0].ProgramID == program) && *found[0].Owner == wish.Owner && hasAll(found[0].Message, words) {
			return nil
		}
		return fmt.Errorf("conflicts of type %s are %+v, without %q", kind, found, words)
	})
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
