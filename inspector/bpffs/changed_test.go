// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpffs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A container that puts a link on the way to a directory doesn't lead the inspector elsewhere, such as to another file system
// of the node.
func TestChangedFollowsNoLinks(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "volumes", "maps")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	open, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	is, _, err := status(open)
	if err != nil {
		t.Fatal(err)
	}
	pins := &Pins{directories: []directory{{"/proc/self", dir, is}}}
	if pins.Changed() {
		t.Error("it has changed")
	}
	on := filepath.Join(root, "volumes")
	if err := errors.Join(os.Rename(on, filepath.Join(root, "elsewhere")), os.Symlink("elsewhere", on)); err != nil {
		t.Fatal(err)
	}
	if !pins.Changed() {
		t.Error("the link was followed")
	}
}
