// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LoseState removes what a reboot of the node removes: the daemon's programs, with their
// pins, and its database. Before that, it stops the agent and the daemon (SIGSTOP), so
// that neither restores anything until their pod is replaced.
func LoseState() error {
	state, err := seenAs(Daemon, stateDir)
	if err != nil {
		return err
	}
	for _, executable := range []string{Agent, Daemon} {
		if err := Signal(executable, unix.SIGSTOP); err != nil {
			return err
		}
	}
	var lost []string
	for _, name := range []string{"db", ".lock", "programs"} { // the latter two are the Go daemon's
		lost = append(lost, filepath.Join(state, name))
	}
	// The directory itself is a mount point.
	pins, err := os.ReadDir(filepath.Join(state, filepath.Base(daemonPins)))
	if err != nil {
		return errors.Join(fmt.Errorf("list pins: %w", err), Signal(Daemon, unix.SIGCONT), Signal(Agent, unix.SIGCONT))
	}
	for _, pin := range pins {
		if strings.HasSuffix(pin.Name(), ".debug") {
			continue // the kernel's own, in every bpffs
		}
		lost = append(lost, filepath.Join(state, filepath.Base(daemonPins), pin.Name()))
	}
	for _, path := range lost {
		if err := os.RemoveAll(path); err != nil {
			return errors.Join(fmt.Errorf("remove %s: %w", path, err), Signal(Daemon, unix.SIGCONT), Signal(Agent, unix.SIGCONT))
		}
	}
	return nil
}
