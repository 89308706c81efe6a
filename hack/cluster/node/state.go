// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package node makes Kubernetes nodes of this machine out of namespaces. Each has its
// own processes, mounts, network, host name, IPC and cgroups, on the host's
// kernel and a copy-on-write view of its files. One process, the node's init,
// keeps it all alive; the kernel takes everything back when it is killed. A
// bridge connects the nodes and the host.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// State identifies the node's init among all processes that ever had its
// number, over reboots as well.
type State struct {
	PID    int    `json:"pid"`
	Start  string `json:"start"` // field 22 of /proc/<pid>/stat
	BootID string `json:"bootID"`
	// Started is when the node was.
	Started time.Time `json:"started"`
}

const stateFile = "node.json"

// Load is the recorded state, or nil where there is none or it can't be read.
func Load(stateDir string) *State {
	text, err := os.ReadFile(filepath.Join(stateDir, stateFile))
	if err != nil {
		return nil
	}
	state := &State{}
	if json.Unmarshal(text, state) != nil || state.PID <= 0 {
		return nil
	}
	return state
}

// observe is the state of the running process of that number.
func observe(pid int) (*State, error) {
	start, err := startTime(pid)
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	return &State{PID: pid, Start: start, BootID: boot}, nil
}

// save records the state.
func (s *State) save(stateDir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the node's state: %w", err)
	}
	// Renamed into place: a half-written file would hide a running node.
	file := filepath.Join(stateDir, stateFile)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return fmt.Errorf("writing the node's state: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("writing the node's state: %w", err)
	}
	return nil
}

// Alive tells whether that very process still runs.
func (s *State) Alive() bool {
	if s == nil {
		return false
	}
	now, err := observe(s.PID)
	return err == nil && now.PID == s.PID && now.Start == s.Start && now.BootID == s.BootID
}

// Root is the node's root directory as seen from the host.
func (s *State) Root() string {
	return filepath.Join("/proc", strconv.Itoa(s.PID), "root")
}

// startTime is when the process started, in the kernel's ticks since boot.
func startTime(pid int) (string, error) {
	fields, err := status(pid)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// status is what /proc/<pid>/stat has behind the process's name, at least 20 fields. A
// zombie has none: it has ended.
func status(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the status of process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold blanks and parentheses itself.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("reading the status of process %d: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return fields, nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
