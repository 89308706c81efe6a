// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpffs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// volume mounts a bpffs with a map as a volume of a pod.
func volume(t *testing.T, root, uid string) string {
	t.Helper()
	mount := filepath.Join(root, "pods", uid, "volumes/kubernetes.io~csi/maps/mount")
	sandbox.MountBPFFS(t, mount)
	sandbox.PinMaps(t, mount, "counters")
	return mount
}

// below counts the pins below a directory.
func below(pins *Pins, directory string) (count int) {
	for _, pin := range pins.All {
		if strings.HasPrefix(pin.Path, directory+"/") {
			count++
		}
	}
	return count
}

// directories counts those that are known.
func (p *Pins) directories() (count int) {
	for _, m := range p.mounts {
		count += len(m.directories)
	}
	return count
}

// TestCrowdedVolume fills a pod's volume with links and directories. The pins of others stay
// known, and the inspector doesn't read more than it wants to.
func TestCrowdedVolume(t *testing.T) {
	root := sandbox.Root(t)
	crowded, quiet, host := volume(t, root, "11111111"), volume(t, root, "22222222"), filepath.Join(root, "fs")
	sandbox.MountBPFFS(t, host)
	sandbox.PinMaps(t, host, "counters")
	for i := range maxOfPod {
		deep := filepath.Join(crowded, fmt.Sprint("d", i%10))
		if err := errors.Join(
			os.MkdirAll(deep, 0o700), os.Link(filepath.Join(crowded, "counters"), filepath.Join(deep, fmt.Sprint("link", i))),
			os.MkdirAll(filepath.Join(deep, fmt.Sprint("e", i)), 0o700),
		); err != nil {
			t.Fatal(err)
		}
	}
	own := []process.Namespace{{PID: os.Getpid()}}
	pins := NewPins("/proc")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := pins.Scan(own)
	runtime.ReadMemStats(&after)
	if want := fmt.Sprintf("%s: more than %d files", crowded, maxOfPod); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if allocated, most := after.TotalAlloc-before.TotalAlloc, uint64(16<<20); allocated > most {
		t.Errorf("%d bytes are allocated, more than %d", allocated, most)
	}
	if count := below(pins, crowded); count > maxOfPod || pins.directories() > maxOfPod+16 {
		t.Errorf("%d pins and %d directories are read", count, pins.directories())
	}
	if below(pins, quiet) != 1 || below(pins, host) != 1 {
		t.Errorf("of others, %d and %d pins are known", below(pins, quiet), below(pins, host))
	}
}

// A pod that serves a file system on the path of a volume, or in it, and doesn't answer, doesn't make the inspector wait. Others'
// pins stay known.
func TestVolumeInAServedFileSystem(t *testing.T) {
	root := sandbox.Root(t)
	behind, within, over, quiet := volume(t, root, "11111111"), volume(t, root, "22222222"), volume(t, root, "33333333"), volume(t, root, "44444444")
	inside := filepath.Join(within, "inside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	own := []process.Namespace{{PID: os.Getpid()}}
	pins := NewPins("/proc")
	if err := pins.Scan(own); err != nil || len(pins.All) != 4 {
		t.Fatalf("%d pins, %v", len(pins.All), err)
	}
	done := make(chan error, 2)
	await := func(what string) {
		t.Helper()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s waits for a server that doesn't answer", what)
		}
	}
	asked := []<-chan uint32{
		sandbox.MountSilentFUSE(t, inside),
		sandbox.MountSilentFUSE(t, over),
		sandbox.MountSilentFUSE(t, filepath.Join(root, "pods/11111111/volumes")), // in the way
	}
	go func() { pins.Changed(); done <- nil }()
	await("the look for changes")
	scanned := make(chan error, 1)
	go func() { scanned <- pins.Scan(own); done <- nil }()
	await("the scan")
	want := fmt.Sprintf("%s: not read, because a file system of type fuse is in the way\n%s: not read, because a file system of type fuse is in the way", behind, over)
	if err := <-scanned; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if below(pins, quiet) != 1 || below(pins, within) != 1 || below(pins, behind)+below(pins, over) > 0 {
		t.Errorf("the pins are %+v", pins.All)
	}
	for _, operations := range asked {
		if len(operations) > 0 {
			t.Errorf("a server was asked: operation %d", <-operations)
		}
	}
}

// A mount that another one covers isn't read in its place, and is said to be unread, unless it is only covered by one of the
// same type, as when /sys/fs/bpf is mounted twice.
func TestCoveredMounts(t *testing.T) {
	root := sandbox.Root(t)
	twice := volume(t, root, "11111111")
	sandbox.MountBPFFS(t, twice)
	sandbox.PinMaps(t, twice, "above")
	own := []process.Namespace{{PID: os.Getpid()}}
	pins := NewPins("/proc")
	if err := pins.Scan(own); err != nil || len(pins.All) != 1 || below(pins, twice) != 1 {
		t.Errorf("%+v, %v", pins.All, err)
	}
	var want []string
	for n := range maxHidden + 2 {
		mount := volume(t, root, fmt.Sprint("2222222", n))
		over := filepath.Join(root, fmt.Sprint("pods/2222222", n))
		if err := unix.Mount("none", over, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(over, unix.MNT_DETACH) })
		if n < maxHidden {
			want = append(want, mount+": not read, because a file system of type tmpfs is in the way")
		}
	}
	want = append(want, "and 2 more such mounts")
	if err := pins.Scan(own); err == nil || err.Error() != strings.Join(want, "\n") || len(pins.All) != 1 {
		t.Errorf("%+v, %v\nwant %s", pins.All, err, strings.Join(want, "\n"))
	}
}

// A container can mount any number of BPF file systems, even in a user namespace of its own. A limited number is read, and the
// error says so. What others see of the same file systems, and the host's, is read as before.
func TestContainerWithManyMounts(t *testing.T) {
	const more = 5
	root := sandbox.Root(t)
	for n := range maxMountsOfOne + more {
		sandbox.MountBPFFS(t, filepath.Join(root, fmt.Sprint("fs", n)))
	}
	own, others := process.Namespace{PID: os.Getpid()}, process.Namespace{PID: os.Getppid()}
	pins := NewPins("/proc")
	if err := pins.Scan([]process.Namespace{own, own}); err != nil || pins.directories() != maxMountsOfOne+more {
		t.Errorf("of the host, %d are read: %v", pins.directories(), err)
	}
	err := pins.Scan([]process.Namespace{others, own})
	if count := pins.directories(); count != maxMountsOfOne || err == nil || !strings.Contains(err.Error(), "some BPF file systems of containers aren't read") {
		t.Errorf("of a container, %d are read: %v", count, err)
	}
}

// The volumes of all pods together have a limit, within which each gets its share.
func TestLimit(t *testing.T) {
	w := walk{leftOfPods: maxFiles}
	for _, c := range []struct {
		ofPod      bool
		left, want int
	}{
		{false, maxFiles, maxFiles}, {false, 0, maxFiles}, {true, maxFiles, maxOfPod}, {true, 100, 100}, {true, 1, minOfPod}, {true, -9, minOfPod},
	} {
		if w.leftOfPods = c.left; w.limit(c.ofPod) != c.want {
			t.Errorf("%+v: %d", c, w.limit(c.ofPod))
		}
	}
}
