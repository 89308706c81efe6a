// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/bpffs"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/v05"
)

const (
	// othersEnd is the maximum wait for another daemon to stop. The pod that this pod
	// replaces has 15 seconds.
	othersEnd  = 30 * time.Second
	othersPoll = 500 * time.Millisecond
)

// prepare prepares the node for the daemon and the agent. It only logs errors about the
// container runtime, which only programs in pods need, and about files of bpfman v0.5,
// with which the daemon of v0.6 works.
func prepare(o options, log logr.Logger) error {
	hostProc := o.hostProc
	if err := bpffs.Mount(bpffsDir); err != nil {
		return err
	}
	if o.helperDir != "" {
		if err := copyHelpers(o.helperDir); err != nil {
			return err
		}
	}
	if socket, err := node.ShareRuntime(o.hostRun, o.runtimeDir); err != nil {
		log.Error(err, "Failed to share the container runtime with the agent; programs can't be attached in pods")
	} else {
		log.Info("Shared the container runtime's directory with the agent", "socket", socket, "dir", o.runtimeDir)
	}
	root := filepath.Join(hostProc, "1/root")
	found, err := v05.Found(bpffsDir, root)
	if err != nil {
		log.Error(err, "Failed to look for files of bpfman v0.5; they are kept")
	}
	if !found || !alone(hostProc, log) {
		return nil
	}
	filters, err := v05.RemoveFilters(bpffsDir)
	if err != nil {
		log.Error(err, "Failed to remove dispatchers of bpfman v0.5 that have no programs")
	}
	if filters > 0 {
		log.Info("Removed dispatchers of bpfman v0.5 that have no programs", "filters", filters)
	}
	moved, err := v05.SetAside(bpffsDir)
	if err != nil {
		log.Error(err, "Failed to set aside pins of bpfman v0.5")
	}
	if len(moved) > 0 {
		log.Info("Set aside pins of bpfman v0.5; its programs stay attached until the agent replaces them", "dir", bpffsDir, "pins", moved)
	}
	removed, err := v05.RemoveDatabase(root)
	if err != nil {
		log.Error(err, "Failed to remove the database of bpfman v0.5")
	}
	if removed {
		log.Info("Removed the database of bpfman v0.5")
	}
	return nil
}

// helpers are the commands, beside the agent in its image, that run in the daemon's container.
var helpers = []string{"bpfman-ns", "bpfman-probe"}

// copyHelpers copies them to a directory that the daemon's container has.
func copyHelpers(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the agent's image: %w", err)
	}
	for _, helper := range helpers {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(self), helper))
		if err != nil {
			return fmt.Errorf("read the daemon's helper: %w", err)
		}
		if err := renameio.WriteFile(filepath.Join(dir, helper), content, 0o555); err != nil { //nolint:mnd // an executable
			return fmt.Errorf("copy the daemon's helper: %w", err)
		}
	}
	return nil
}

// alone waits until no other daemon on the node uses the same bpffs, and reports whether
// that is so at the end.
func alone(hostProc string, log logr.Logger) bool {
	var failed error
	err := wait.PollUntilContextTimeout(context.Background(), othersPoll, othersEnd, true, func(context.Context) (bool, error) {
		running, err := v05.Running(hostProc, bpffsDir)
		failed = err
		return !running, err
	})
	switch {
	case failed != nil:
		log.Error(failed, "Failed to look for a running bpfman daemon; the files of bpfman v0.5 are kept")
	case err != nil:
		log.Info("Another bpfman daemon on this node uses the same BPF file system; its programs and its database are kept", "dir", bpffsDir)
	}
	return err == nil
}
