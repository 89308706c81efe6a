// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// cgroupVariable is the environment variable with the cgroup's directory, for processes
// that attach programs to it.
const cgroupVariable = "INSPECTOR_TEST_CGROUP"

// cgroup is a v2 cgroup for the test alone.
type cgroup struct{ dir string }

// cgroupPath is its path below the root of the hierarchy.
var cgroupPath = fmt.Sprintf("/inspector-test-%d", os.Getpid())

// makeCgroup creates a cgroup until the test ends. It skips the test if there is no
// cgroup v2.
func makeCgroup(t *testing.T) cgroup {
	t.Helper()
	mounts, err := process.Mounts("/proc", 1, "cgroup2")
	if err != nil {
		t.Fatal(err)
	}
	if len(mounts) == 0 {
		prerequisite.Missing(t, "cgroups of version 2 aren't mounted", prerequisite.CgroupV2)
	}
	c := cgroup{filepath.Join(mounts[0].Mountpoint, cgroupPath)}
	must.Succeed(t, os.Mkdir(c.dir, 0o755))
	t.Cleanup(func() { c.remove(t) })
	t.Setenv(cgroupVariable, c.dir)
	return c
}

// remove removes the cgroup, and with it what is attached to it.
func (c cgroup) remove(t *testing.T) {
	t.Helper()
	if err := os.Remove(c.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
