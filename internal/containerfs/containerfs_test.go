// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package containerfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// open returns a directory as a root.
func open(t *testing.T, directory string) *Root {
	t.Helper()
	root, err := At(directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// within fails the test if a call doesn't return. The end of the test lets it return.
func within(t *testing.T, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a server that doesn't answer")
	}
}

// Nothing asks a file system that a process serves, neither for what is on it nor for its root.
func TestServed(t *testing.T) {
	dir := sandbox.Root(t)
	served := filepath.Join(dir, "a", "served")
	if err := errors.Join(os.MkdirAll(served, 0o700), os.WriteFile(filepath.Join(dir, "a/file"), nil, 0o600), os.Symlink("/a/served/x", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	asked := sandbox.MountSilentFUSE(t, served)
	for _, path := range []string{"/a/served", "/a/served/", "a/served/x/y", "/link", "/a/../a/./served/../file"} {
		within(t, func() {
			_, err := open(t, dir).Find(path)
			if found := (*ServedError)(nil); !errors.As(err, &found) || found.Type != "fuse" {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	within(t, func() {
		if _, err := open(t, served).Find("/x"); err == nil {
			t.Error("it is found in a root that is served")
		}
		fd, err := open(t, dir).Find("/a/file")
		if err != nil {
			t.Error(err)
		}
		_ = unix.Close(fd)
	})
	within(t, func() {
		root := open(t, dir)
		fd, err := root.Cached("/a/served")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		if kind, err := root.Type(fd); kind != "fuse" || err != nil {
			t.Errorf("%q, %v", kind, err)
		}
		if _, err := root.Cached("/a/served/x"); err == nil {
			t.Error("a directory of a silent server is found")
		}
	})
	select {
	case operation := <-asked:
		t.Errorf("the server was asked: operation %d", operation)
	default:
	}
}

// Paths are resolved as the kernel does it with RESOLVE_IN_ROOT.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"bin", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/app"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"absolute": "/bin/app", "relative": "bin/../bin/app", "above": "../../bin/app", "loop": "loop", "first": "second", "second": "/bin", "lib": "usr/lib", "usr/up": "..",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root := open(t, dir)
	for _, path := range []string{
		"/bin/app", "bin/app", "//bin/./app", "/absolute", "/relative", "/above", "/loop", "/first/app", "/second/../bin/app", "/lib", "/lib/../../bin", "/usr/up/bin/app",
		"/bin/app/x", "/bin/app/..", "/absent", "/bin/absent/..", "/", "..", "",
	} {
		want, reason := unix.Openat2(root.fd, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		got, err := root.Find(path)
		var a, b unix.Stat_t
		_, _ = unix.Fstat(want, &a), unix.Fstat(got, &b)
		if !errors.Is(err, reason) || a.Ino != b.Ino {
			t.Errorf("%q: %v, inode %d, want %v, %d", path, err, b.Ino, reason, a.Ino)
		}
		_, _ = unix.Close(want), unix.Close(got)
	}
}

// The kernel asks the file systems that it serves itself even for what it has in memory. /sys/fs/bpf is on one of them.
func TestCachedOnSysfs(t *testing.T) {
	fd, err := open(t, "/").Cached("/sys/fs")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

// A container can nest any number of cgroups, and mount something in the last one. Not all are asked for: for each, the kernel
// would list all mounts of the container.
func TestCachedInNestedCgroups(t *testing.T) {
	dir := sandbox.Root(t)
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path, root := dir, open(t, "/")
	for n := range maxAsked + 1 {
		path = filepath.Join(path, fmt.Sprint("nested", os.Getpid()))
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		cgroup := path
		t.Cleanup(func() { _ = unix.Rmdir(cgroup) })
		fd, err := root.Cached(path)
		if found := (*ServedError)(nil); n == maxAsked != errors.As(err, &found) {
			t.Errorf("cgroup %d: %v", n+1, err)
		}
		_ = unix.Close(fd)
	}
}
