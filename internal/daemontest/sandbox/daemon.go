// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

const (
	// DaemonMaps is the directory where the daemon pins maps.
	DaemonMaps = "/run/bpfman/fs/maps"

	offlineConfig = "[signing]\nverify_enabled = false\nallow_unsigned = true\n"
)

// StartDaemon runs the real bpfman daemon in the sandbox, on an empty /run. It skips the
// test if there is no daemon.
func StartDaemon(tb testing.TB) *daemontest.Real {
	tb.Helper()
	mountConfig(tb, Root(tb))
	return daemontest.StartHere(tb)
}

// mountConfig mounts an empty /run for the daemon in this mount namespace, and an /etc
// with its configuration, which has a fixed path.
func mountConfig(tb testing.TB, directory string) {
	tb.Helper()
	upper, work := filepath.Join(directory, "upper"), filepath.Join(directory, "work")
	for _, path := range []string{filepath.Join(upper, "bpfman"), work} {
		if err := os.MkdirAll(path, 0o750); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(upper, "bpfman/bpfman.toml"), []byte(offlineConfig), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work); err != nil {
		tb.Fatalf("mount /etc: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Unmount("/etc", unix.MNT_DETACH) })
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		tb.Fatalf("mount /run: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Unmount("/run", unix.MNT_DETACH) })
}
