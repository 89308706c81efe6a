// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted cgroup hierarchy.
type hierarchy struct {
	point   string // the mount point
	fstype  string // "cgroup" (v1) or "cgroup2"
	options string // v1: controllers or name
}

// hierarchies lists the mounted cgroup hierarchies.
func hierarchies() ([]hierarchy, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list the cgroup hierarchies: %w", err)
	}
	defer file.Close()
	var all []hierarchy
	for lines := bufio.NewScanner(file); lines.Scan(); {
		mount, kind, _ := strings.Cut(lines.Text(), " - ")
		fields, types := strings.Fields(mount), strings.Fields(kind)
		if len(fields) < 5 || len(types) < 3 || !strings.HasPrefix(types[0], "cgroup") {
			continue
		}
		options := slices.DeleteFunc(strings.Split(types[2], ","), func(o string) bool {
			return o == "rw" || o == "ro" || strings.HasPrefix(o, "release_agent=")
		})
		all = append(all, hierarchy{point: fields[4], fstype: types[0], options: strings.Join(options, ",")})
	}
	if len(all) == 0 {
		return nil, errors.New("list the cgroup hierarchies: none is mounted")
	}
	return all, nil
}

// createCgroups creates the node's cgroup in each hierarchy. Inside the node, it is the
// root, so all cgroups that are created there are below it.
func createCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.fstype == "cgroup2" {
			if err := rootOf(h).add(name); err != nil {
				return err
			}
			continue
		}
		dir := filepath.Join(h.point, name)
		if err := makeCgroup(dir); err != nil {
			return err
		}
		if err := inheritCpuset(h.point, dir); err != nil {
			return err
		}
	}
	return nil
}

func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the node's cgroup: %w", err)
	}
	return nil
}

// inheritCpuset copies the CPUs and memory nodes of the parent to a new v1 cpuset
// cgroup. Without them, the kernel adds no process to it.
func inheritCpuset(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the host's %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return fmt.Errorf("set the node's %s: %w", name, err)
		}
	}
	return nil
}

// joinCgroups moves the process to the node's cgroups.
func joinCgroups(name string, pid int) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		procs := filepath.Join(h.point, name, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d to the node's cgroup: %w", pid, err)
		}
	}
	return nil
}

// removeCgroups removes the node's cgroups, and what only they needed. It kills the processes
// that are still in them.
func removeCgroups(ctx context.Context, name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(h.point, name)
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove the cgroup %s: %w", dir, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
		if h.fstype == "cgroup2" {
			if err := rootOf(h).restore(); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeTree removes a cgroup and its descendants, children first.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range strings.FieldsSeq(string(procs)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
