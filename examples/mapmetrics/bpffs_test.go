// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"testing"

	"golang.org/x/sys/unix"
)

// bpffs returns a directory with a new bpffs.
func bpffs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpffs", dir, "bpf", 0, ""); err != nil {
		t.Skip("mount a bpffs:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
