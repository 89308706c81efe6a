// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestControllers adds and removes nodes of several clusters in a directory that looks like a root cgroup. Unlike the
// kernel's, its subtree_control has what was written to it last.
func TestControllers(t *testing.T) {
	for name, c := range map[string]struct {
		others  []string // cgroups of the machine
		enabled string   // before
		steps   func(t *testing.T, r sharedRoot)
		control string // the last that the kernel was asked for
		record  string
	}{
		"a node": {
			enabled: "memory",
			steps:   func(t *testing.T, r sharedRoot) { t.Helper(); begin(t, r, "a") },
			control: "+hugetlb", record: "hugetlb",
		},
		"the last node of a cluster beside another": {
			enabled: "memory",
			steps: func(t *testing.T, r sharedRoot) {
				t.Helper()
				begin(t, r, "a", "b")
				end(t, r, "a")
			},
			control: "+hugetlb", record: "hugetlb",
		},
		"the last node": {
			enabled: "memory",
			steps: func(t *testing.T, r sharedRoot) {
				t.Helper()
				begin(t, r, "a", "b")
				end(t, r, "a", "b")
			},
			control: "-hugetlb",
		},
		"all were enabled": {
			enabled: "memory hugetlb",
			steps: func(t *testing.T, r sharedRoot) {
				t.Helper()
				begin(t, r, "a")
				end(t, r, "a")
			},
			control: "memory hugetlb",
		},
		"a machine with cgroups of its own": {
			others: []string{"system.slice"}, enabled: "memory",
			steps: func(t *testing.T, r sharedRoot) {
				t.Helper()
				begin(t, r, "a")
				end(t, r, "a")
			},
			control: "+hugetlb",
		},
		"a node that is created twice": {
			enabled: "memory",
			steps: func(t *testing.T, r sharedRoot) {
				t.Helper()
				begin(t, r, "a", "a")
				end(t, r, "a")
			},
			control: "-hugetlb",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sharedRoot{dir: t.TempDir(), record: filepath.Join(t.TempDir(), "record")}
			write(t, filepath.Join(r.dir, "cgroup.controllers"), "memory hugetlb\n")
			write(t, filepath.Join(r.dir, "cgroup.subtree_control"), c.enabled)
			for _, other := range c.others {
				if err := os.Mkdir(filepath.Join(r.dir, other), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c.steps(t, r)
			if got := read(t, filepath.Join(r.dir, "cgroup.subtree_control")); got != c.control {
				t.Errorf("the kernel was asked for %q, want %q", got, c.control)
			}
			if got := read(t, r.record); got != c.record {
				t.Errorf("recorded %q, want %q", got, c.record)
			}
		})
	}
}

// TestControllers_RefusedLater checks that a controller that the kernel doesn't disable stays recorded.
func TestControllers_RefusedLater(t *testing.T) {
	r := sharedRoot{dir: t.TempDir(), record: filepath.Join(t.TempDir(), "record")}
	write(t, filepath.Join(r.dir, "cgroup.controllers"), "hugetlb")
	write(t, filepath.Join(r.dir, "cgroup.subtree_control"), "")
	begin(t, r, "a")
	control := filepath.Join(r.dir, "cgroup.subtree_control")
	if err := os.Remove(control); err != nil {
		t.Fatal(err)
	}
	if err := unix.Rmdir(filepath.Join(r.dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", control); err != nil { // writing to it fails
		t.Fatal(err)
	}
	if err := r.restore(); err == nil {
		t.Error("no error")
	}
	if got := read(t, r.record); got != "hugetlb" {
		t.Errorf("recorded %q", got)
	}
}

func begin(t *testing.T, r sharedRoot, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := r.add(name); err != nil {
			t.Fatal(err)
		}
	}
}

func end(t *testing.T, r sharedRoot, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := unix.Rmdir(filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := r.restore(); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file, or nothing if it doesn't exist.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(content)
}
