// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

// TestWatch watches a bpffs through another mount than the one that the daemon uses,
// like the plugin's container. The directory's creation is noticed, without looking again.
func TestWatch(t *testing.T) {
	retry := watchRetry
	watchRetry = time.Hour
	t.Cleanup(func() { watchRetry = retry })
	directory := sandbox.Root(t)
	daemons, ours := filepath.Join(directory, "daemon"), filepath.Join(directory, "plugin")
	sandbox.MountBPFFS(t, daemons)
	if err := os.Mkdir(ours, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(daemons, ours, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(ours, unix.MNT_DETACH) })

	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- Watch(ctx, filepath.Join(ours, "maps"), func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	// The directory is created while Watch looks for it, and replaced while it is
	// watched.
	for range 2 {
		sandbox.PinMaps(t, filepath.Join(daemons, "maps/7"), "counters")
		<-changes
		sandbox.PinMaps(t, filepath.Join(daemons, "maps/8"), "counters")
		<-changes
		if err := os.RemoveAll(filepath.Join(daemons, "maps")); err != nil {
			t.Fatal(err)
		}
		<-changes
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// While the directory doesn't exist, each look for it takes the whole interval, also those after the first one. The end of the
// watch of a look is an event too.
func TestAwaitDirectory(t *testing.T) {
	retry := watchRetry
	watchRetry = 50 * time.Millisecond
	t.Cleanup(func() { watchRetry = retry })
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	absent := filepath.Join(t.TempDir(), "maps")
	for range 3 {
		began := time.Now()
		awaitDirectory(fd, events, absent)
		if took := time.Since(began); took < watchRetry {
			t.Errorf("a look took %v", took)
		}
	}
}
