// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package node creates Kubernetes nodes on this machine from namespaces. Each node has
// its own processes, mounts, network, host name, IPC, and cgroups, on the host's kernel
// and a copy-on-write view of its files. If the node's init is killed, the kernel ends
// all processes of the node, and removes its namespaces. A bridge connects the nodes and
// the host.
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

// State identifies the node's init, even if its process id is reused, and across
// reboots.
type State struct {
	PID    int    `json:"pid"`
	Start  string `json:"start"` // field 22 of /proc/<pid>/stat
	BootID string `json:"bootID"`
	// Started is the time when the node was started.
	Started time.Time `json:"started"`
}

const stateFile = "node.json"

// Load returns the stored state, or nil if there is none, or if it can't be read.
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

// observe returns the state of the running process with the given id.
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

// save stores the state.
func (s *State) save(stateDir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the node's state: %w", err)
	}
	// Replace the file by renaming, because an incomplete file would hide a running
	// node.
	file := filepath.Join(stateDir, stateFile)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return fmt.Errorf("write the node's state: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write the node's state: %w", err)
	}
	return nil
}

// Alive reports whether the same process is still running.
func (s *State) Alive() bool {
	if s == nil {
		return false
	}
	now, err := observe(s.PID)
	return err == nil && now.PID == s.PID && now.Start == s.Start && now.BootID == s.BootID
}

// Root returns the node's root directory, as a path on the host.
func (s *State) Root() string {
	return filepath.Join("/proc", strconv.Itoa(s.PID), "root")
}

// startTime returns the start time of the process, in clock ticks since the boot.
func startTime(pid int) (string, error) {
	fields, err := status(pid)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// status returns the fields of /proc/<pid>/stat after the process's name. There are at
// least 20. For a zombie, it returns an error, because it has ended.
func status(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return nil, fmt.Errorf("read the status of process %d: %w", pid, err)
	}
	// The name is in parentheses, and can contain blanks and parentheses.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("read the status of process %d: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return fields, nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
