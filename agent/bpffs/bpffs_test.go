// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpffs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// privately runs a test in a new mount namespace.
func privately(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	prerequisite.NeedsRoot(t, "mounting needs CAP_SYS_ADMIN")
	dir := t.TempDir()
	daemontest.OnOwnThread(func() {
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
			t.Errorf("make a mount namespace: %v", err)
			return
		}
		test(t, dir)
	})
}

// mounts returns the lines about a directory in the thread's mount table.
func mounts(t *testing.T, dir string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == dir {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestMount(t *testing.T) {
	privately(t, func(t *testing.T, dir string) {
		t.Helper()
		dir = filepath.Join(dir, "bpfman/fs") // Mount creates it
		if err := Mount(dir); err != nil {
			t.Error(err)
			return
		}
		if mounted, err := Mounted(dir); err != nil || !mounted {
			t.Errorf("mounted: %v, %v", mounted, err)
		}
		lines := mounts(t, dir)
		// The daemon recognizes the source "none".
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "none "+dir+" bpf ") {
			t.Errorf("mounts %q", lines)
		}
		for _, option := range []string{"nosuid", "nodev", "noexec"} {
			if len(lines) == 1 && !strings.Contains(lines[0], option) {
				t.Errorf("not %s: %s", option, lines[0])
			}
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", info, err)
		}

		// Pins stay reachable, because nothing is mounted over them.
		pin := filepath.Join(dir, "maps")
		if err := os.Mkdir(pin, 0o750); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := Mount(dir); err != nil {
				t.Error(err)
			}
		}
		if lines := mounts(t, dir); len(lines) != 1 {
			t.Errorf("mounted again: %q", lines)
		}
		if _, err := os.Stat(pin); err != nil {
			t.Error(err)
		}
	})
}

// Mount accepts a bpffs with another source, but no other file system.
func TestMountWhereSomethingIsMounted(t *testing.T) {
	for kind, want := range map[string]int{"bpf": 1, "tmpfs": 2} {
		t.Run(kind, func(t *testing.T) {
			privately(t, func(t *testing.T, dir string) {
				t.Helper()
				if err := unix.Mount("another", dir, kind, 0, ""); err != nil {
					t.Error(err)
					return
				}
				if err := Mount(dir); err != nil {
					t.Error(err)
				}
				if lines := mounts(t, dir); len(lines) != want {
					t.Errorf("mounts %q, want %d", lines, want)
				}
			})
		})
	}
}

func TestMountedTellsOfWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	if mounted, err := Mounted(dir); err != nil || mounted {
		t.Errorf("mounted: %v, %v", mounted, err)
	}
	absent := filepath.Join(dir, "absent")
	if _, err := Mounted(absent); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("error of an absent directory: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Mount(filepath.Join(file, "fs")); err == nil || !strings.Contains(err.Error(), "mount bpffs") {
		t.Errorf("error of a directory in a file: %v", err)
	}
}
