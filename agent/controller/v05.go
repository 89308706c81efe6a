// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/v05"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

const (
	// replacedWithin is the maximum time from the agent's start for which programs of bpfman v0.5 are kept
	// while an object isn't attached. The object might be meant to replace them, but might never be attached.
	replacedWithin = 10 * time.Minute
	// replacedPoll is the interval of checks whether all objects are attached.
	replacedPoll = 2 * time.Second
	// nodeWithin is how long an Event waits until the Node has been read, which takes a moment at the agent's
	// start.
	nodeWithin = 30 * time.Second
	nodePoll   = 200 * time.Millisecond

	reasonLeft    = "UpstreamProgramsFound"
	reasonRemoved = "UpstreamProgramsRemoved"
)

// retirement removes what a daemon of v0.5 left on the node.
type retirement struct {
	cluster   *cluster.Cluster
	inventory *daemon.Inventory
	bpffs     string
	// attached reports whether the daemon has all wanted programs and links of an object on this node.
	attached func(context.Context, program.Key) bool
}

// retire removes the programs, maps, and directories of a v0.5 daemon that the init container has set aside,
// after all objects for this node are attached. Until then, old and new programs run at the same time, so that
// no packet is missed.
func (r retirement) retire(ctx context.Context, within time.Duration) {
	logger := logr.FromContextOrDiscard(ctx)
	left, err := v05.Programs(r.bpffs)
	if err != nil {
		logger.Error(err, "Failed to look for programs of bpfman v0.5; they are kept")
		return
	}
	remove := func() error {
		return r.inventory.Exclusively(ctx, func() error { return v05.Remove(r.bpffs) })
	}
	if len(left) == 0 {
		if err := remove(); err != nil { // maps and directories
			logger.Error(err, "Failed to remove the maps and directories of bpfman v0.5")
		}
		return
	}
	programs := fmt.Sprintf("%d programs of bpfman v0.5 (kernel IDs %s)", len(left), strings.Join(left, ", "))
	if len(left) == 1 {
		programs = fmt.Sprintf("1 program of bpfman v0.5 (kernel ID %s)", left[0])
	}
	logger.Info("Found programs of bpfman v0.5; keeping them attached until every object is attached", "programs", left, "timeout", within.String())
	r.tellNode(ctx, corev1.EventTypeNormal, reasonLeft,
		fmt.Sprintf("Found %s: kept attached until every object is attached on this node, for at most %v", programs, within))

	why := "every object is attached on this node"
	deadline := time.Now().Add(within)
	tick := time.NewTicker(replacedPoll)
	defer tick.Stop()
	for missing := r.unattached(ctx); missing != ""; missing = r.unattached(ctx) {
		if time.Now().After(deadline) && r.inventory.Known() {
			why = fmt.Sprintf("%v have passed, although %s is not attached on this node", within, missing)
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	if err := remove(); err != nil {
		logger.Error(err, "Failed to remove the programs of bpfman v0.5")
		r.tellNode(ctx, corev1.EventTypeWarning, reasonLeft, fmt.Sprintf("Failed to remove %s: %v", programs, err))
		return
	}
	logger.Info("Detached and removed the programs of bpfman v0.5", "programs", left, "reason", why)
	r.tellNode(ctx, corev1.EventTypeNormal, reasonRemoved, fmt.Sprintf("Detached and removed %s: %s", programs, why))
}

// unattached returns the first object that isn't attached on this node as wanted, or another reason to wait. It
// returns "" if all objects are attached.
func (r retirement) unattached(ctx context.Context) string {
	if !r.inventory.Known() {
		return "the daemon doesn't answer"
	}
	for _, kind := range v1alpha1.UserKinds {
		objects, err := r.cluster.UserObjects(kind.Name)
		if unread := (*kinds.UnreadError)(nil); errors.As(err, &unread) && unread.Unused && unread.Err == nil {
			continue
		}
		if err != nil {
			return err.Error()
		}
		for _, object := range objects {
			key := program.Key{Kind: kind.Name, Namespace: object.GetNamespace(), Name: object.GetName()}
			if !r.attached(ctx, key) {
				return key.String()
			}
		}
	}
	return ""
}

// tellNode emits an Event about this node, for messages that aren't about a user object.
func (r retirement) tellNode(ctx context.Context, kind, reason, message string) {
	var node *corev1.Node
	err := wait.PollUntilContextTimeout(ctx, nodePoll, nodeWithin, true, func(context.Context) (bool, error) {
		var err error
		if node, err = r.cluster.OwnNode(); kinds.Unread(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to emit an Event", "message", message)
		return
	}
	event.Emit(r.cluster.Events, node, kind, reason, "Retire", message)
}
