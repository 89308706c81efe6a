// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/bpffs"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/v05"
)

const (
	// othersEnd is how long another daemon may take to end: that of a pod which
	// this one's replaces has 15 seconds.
	othersEnd  = 30 * time.Second
	othersPoll = 500 * time.Millisecond
)

// prepare makes the node ready for daemon and agent. Programs that aren't for pods do
// without the container runtime, and what a daemon of v0.5 left doesn't keep that of v0.6
// from working, so no error about them is one here.
func prepare(o options, log logr.Logger) error {
	hostProc := o.hostProc
	if err := bpffs.Mount(bpffsDir); err != nil {
		return err
	}
	if socket, err := node.ShareRuntime(o.hostRun, o.runtimeDir); err != nil {
		log.Error(err, "Programs for pods won't find them")
	} else {
		log.Info("Showed the container runtime's directory to the agent", "socket", socket, "dir", o.runtimeDir)
	}
	root := filepath.Join(hostProc, "1/root")
	found, err := v05.Found(bpffsDir, root)
	if err != nil {
		log.Error(err, "What bpfman v0.5 may have left stays")
	}
	if !found || !alone(hostProc, log) {
		return nil
	}
	filters, err := v05.RemoveFilters(bpffsDir)
	if err != nil {
		log.Error(err, "Dispatchers of bpfman v0.5 stay, without programs")
	}
	if filters > 0 {
		log.Info("Removed dispatchers of bpfman v0.5, whose programs are gone", "filters", filters)
	}
	moved, err := v05.SetAside(bpffsDir)
	if err != nil {
		log.Error(err, "Not all that bpfman v0.5 left can be removed")
	}
	if len(moved) > 0 {
		log.Info("Set aside what bpfman v0.5 pinned: it stays attached until the agent has replaced it", "dir", bpffsDir, "pins", moved)
	}
	removed, err := v05.RemoveDatabase(root)
	if err != nil {
		log.Error(err, "The database of bpfman v0.5 stays")
	}
	if removed {
		log.Info("Removed the database of bpfman v0.5")
	}
	return nil
}

// alone waits until no daemon runs on the node that uses the same bpffs, and
// tells whether none does in the end.
func alone(hostProc string, log logr.Logger) bool {
	var failed error
	err := wait.PollUntilContextTimeout(context.Background(), othersPoll, othersEnd, true, func(context.Context) (bool, error) {
		running, err := v05.Running(hostProc, bpffsDir)
		failed = err
		return !running, err
	})
	switch {
	case failed != nil:
		log.Error(failed, "What bpfman v0.5 left stays")
	case err != nil:
		log.Info("Another bpfman daemon runs on this node and uses the same file system: its programs and its database stay", "dir", bpffsDir)
	}
	return err == nil
}
