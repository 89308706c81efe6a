// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpffs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// A container that puts a link on the way to a directory doesn't lead the inspector elsewhere, such as to another file system
// of the node.
func TestChangedFollowsNoLinks(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "volumes", "maps")
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	var stat unix.Stat_t
	must.Succeed(t, unix.Stat(dir, &stat))
	pins := &Pins{directories: []directory{{root, "/volumes/maps", identify(&stat)}}}
	if pins.Changed() {
		t.Error("it has changed")
	}
	must.Succeed(t, os.Rename(filepath.Join(root, "volumes"), filepath.Join(root, "elsewhere")))
	must.Succeed(t, os.Symlink("elsewhere", filepath.Join(root, "volumes")))
	if !pins.Changed() {
		t.Error("the link was followed")
	}
}
