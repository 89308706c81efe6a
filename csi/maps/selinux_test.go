// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

const (
	volumeLabel = "system_u:object_r:container_file_t:s0"
	// containerDomain is the context of containers, with example categories.
	containerDomain = "system_u:system_r:container_t:s0:c1,c2"
)

// enforcing reports whether SELinux is in enforcing mode.
func enforcing() bool {
	mode, err := os.ReadFile("/sys/fs/selinux/enforce")
	return err == nil && string(mode) == "1"
}

// TestSELinuxContext publishes with a context. A kernel with SELinux sets it on all
// files of the volume. Other kernels ignore it.
func TestSELinuxContext(t *testing.T) {
	n := newNode(t)
	n.volumes = NewVolumes(n.root, volumeLabel)
	n.publish(t, n.maps, Access{})
	n.check(t, Access{})
	if !enforcing() {
		return
	}
	for _, path := range []string{n.target, filepath.Join(n.target, "counters")} {
		got := make([]byte, 256)
		size, err := unix.Getxattr(path, "security.selinux", got)
		if err != nil || strings.TrimRight(string(got[:max(size, 0)]), "\x00") != volumeLabel {
			t.Errorf("%s has context %q, %v", path, got[:max(size, 0)], err)
		}
	}
}

// TestSELinuxEnforced opens maps in the domain of containers. hack/selinux runs it as a
// privileged container, with the policy module and without it.
func TestSELinuxEnforced(t *testing.T) {
	if !enforcing() {
		prerequisite.Missing(t, "it isn't enforced here", prerequisite.SELinux)
	}
	module := os.Getenv("BPFMAN_SELINUX_MODULE") != ""
	for name, test := range map[string]struct {
		label  string
		access Access
		flags  int
		want   bool
	}{
		"no label":                  {flags: unix.BPF_F_RDONLY},
		"read":                      {label: volumeLabel, flags: unix.BPF_F_RDONLY, want: module},
		"read and write":            {label: volumeLabel, want: module},
		"label of other categories": {label: volumeLabel + ":c0", flags: unix.BPF_F_RDONLY},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.volumes = NewVolumes(n.root, test.label)
			n.publish(t, n.maps, test.access)
			// The context for the next program belongs to the thread.
			runtime.LockOSThread()
			if err := os.WriteFile("/proc/thread-self/attr/exec", []byte(containerDomain), 0); err != nil {
				t.Fatal(err)
			}
			err := sandbox.Run(t, "open", nil, sandbox.Fault{}, filepath.Join(n.target, "counters"), strconv.Itoa(test.flags))
			if (err == nil) != test.want {
				t.Errorf("open: %v, want success %v", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "exit status 1: ") {
				t.Errorf("failed before it opened anything: %v", err)
			}
		})
	}
}
