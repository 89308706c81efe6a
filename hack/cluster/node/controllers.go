// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sharedRoot is the root of the machine's cgroup v2 hierarchy. The nodes of all clusters have
// their cgroups in it, and what it enables for one of them, it enables for all.
type sharedRoot struct {
	dir    string
	record string // a file with the controllers that nodes have enabled
}

func rootOf(h hierarchy) sharedRoot {
	return sharedRoot{dir: h.point, record: "/run/bpfman-cluster-controllers"}
}

// add creates a node's cgroup, and enables all controllers for it. If the machine has other cgroups than nodes', their
// owner can rely on what is enabled from now on, so it stays enabled when the nodes have ended.
func (r sharedRoot) add(name string) error {
	return r.locked(func() error {
		others, err := r.children()
		if err != nil {
			return err
		}
		if enabled := enableControllers(r.dir); len(enabled) > 0 && len(others) == 0 {
			recorded, err := r.recorded()
			if err != nil {
				return err
			}
			if err := os.WriteFile(r.record, []byte(strings.Join(append(recorded, enabled...), " ")), 0o600); err != nil {
				return fmt.Errorf("record the enabled cgroup controllers: %w", err)
			}
		}
		return makeCgroup(filepath.Join(r.dir, name))
	})
}

// restore disables the controllers that nodes have enabled, unless a cgroup is left. On a hybrid hierarchy, the kernel
// would also do so while another node's cgroup exists.
func (r sharedRoot) restore() error {
	return r.locked(func() error {
		recorded, err := r.recorded()
		if err != nil || len(recorded) == 0 {
			return err
		}
		if left, err := r.children(); err != nil || len(left) > 0 {
			return err
		}
		for _, controller := range recorded {
			if err := os.WriteFile(filepath.Join(r.dir, "cgroup.subtree_control"), []byte("-"+controller), 0); err != nil {
				return fmt.Errorf("disable the cgroup controller %s: %w", controller, err)
			}
		}
		if err := os.Remove(r.record); err != nil {
			return fmt.Errorf("remove the record of cgroup controllers: %w", err)
		}
		return nil
	})
}

// locked runs a change while no other process makes one.
func (r sharedRoot) locked(change func() error) error {
	dir, err := os.Open(r.dir)
	if err != nil {
		return fmt.Errorf("lock the root cgroup: %w", err)
	}
	defer dir.Close() // unlocks it
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock the root cgroup: %w", err)
	}
	return change()
}

func (r sharedRoot) recorded() ([]string, error) {
	content, err := os.ReadFile(r.record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which cgroup controllers are enabled for nodes: %w", err)
	}
	return strings.Fields(string(content)), nil
}

// children returns the names of the cgroups in the root.
func (r sharedRoot) children() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list the cgroups of the machine: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// enableControllers enables all controllers of a v2 cgroup for its children, and returns those that weren't. It skips
// controllers that the kernel refuses, for example because of a realtime process.
func enableControllers(dir string) (enabled []string) {
	control := filepath.Join(dir, "cgroup.subtree_control")
	controllers, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	before, _ := os.ReadFile(control)
	for controller := range strings.FieldsSeq(string(controllers)) {
		if !slices.Contains(strings.Fields(string(before)), controller) && os.WriteFile(control, []byte("+"+controller), 0) == nil {
			enabled = append(enabled, controller)
		}
	}
	return enabled
}
