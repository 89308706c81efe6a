// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpffs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
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
	pins := &Pins{mounts: []mounted{{process: "/proc/self", path: dir, directories: []directory{{".", is}}, each: 1}}}
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

// However many directories a file system has, a change in another one is found by the next call, and one of its own after a few calls.
func TestChangedInManyDirectories(t *testing.T) {
	root := sandbox.Root(t)
	host, quiet := filepath.Join(root, "fs"), volume(t, root, "11111111")
	sandbox.MountBPFFS(t, host)
	const calls = 3
	for n := range (calls - 1) * maxLooked {
		if err := os.Mkdir(filepath.Join(host, fmt.Sprint(n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pins := NewPins("/proc")
	scan := func() {
		t.Helper()
		if err := pins.Scan([]process.Namespace{{PID: os.Getpid()}}); err != nil {
			t.Fatal(err)
		}
	}
	scan()
	looked := 0
	for _, m := range pins.mounts {
		looked += m.each
	}
	if looked > maxLooked {
		t.Errorf("a call looks at %d directories", looked)
	}
	for range calls {
		if pins.Changed() {
			t.Error("it has changed")
		}
	}
	for where, most := range map[string]int{quiet: 1, filepath.Join(host, "77"): calls, filepath.Join(host, "8000"): calls} {
		if err := os.Mkdir(filepath.Join(where, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		found := 1
		for !pins.Changed() && found <= most {
			found++
		}
		if found > most {
			t.Errorf("a change in %s isn't found in %d calls", where, most)
		}
		scan()
	}
}

// All file systems together have a limit, within which each gets its share.
func TestShare(t *testing.T) {
	pins := &Pins{}
	for _, size := range []int{1 << 20, 1, 40, 1 << 20} {
		pins.mounts = append(pins.mounts, mounted{directories: make([]directory, size)})
	}
	pins.share()
	var each []int
	for _, m := range pins.mounts {
		each = append(each, m.each)
	}
	if rest := (maxLooked - 41) / 2; !slices.Equal(each, []int{1, 40, rest, rest + 1}) {
		t.Errorf("%d", each)
	}
}

// Paths can be longer than the kernel takes, because each directory is read from the one above. Otherwise, such a directory in a
// pod's volume would seem to change forever, so the inspector would read all processes of the node again and again.
func TestChangedBelowALongPath(t *testing.T) {
	dir := volume(t, sandbox.Root(t), "11111111")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	deep := strings.Repeat(strings.Repeat("d", 250)+"/", maxDepth-1)
	if err := root.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	pins := NewPins("/proc")
	if err := pins.Scan([]process.Namespace{{PID: os.Getpid()}}); err != nil {
		t.Fatal(err)
	}
	if count := pins.directories(); count < maxDepth {
		t.Errorf("%d directories are read", count)
	}
	for range maxDepth {
		if pins.Changed() {
			t.Fatal("it has changed")
		}
	}
	if err := root.Mkdir(deep+"new", 0o700); err != nil {
		t.Fatal(err)
	}
	if !pins.Changed() {
		t.Error("it hasn't changed")
	}
}
