// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/containerfs"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// container returns the root of a container in which its owner created files that a uprobe's target can be.
func container(t *testing.T) (dir string, root *containerfs.Root) {
	t.Helper()
	dir = t.TempDir()
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for path, content := range map[string]string{
		filepath.Join(dir, "bin/app"): "app", filepath.Join(dir, "usr/lib/x86_64-linux-gnu/libz.so.1"): "libz",
		filepath.Join(dir, "usr/lib/libzstd.so.1"): "another", outside: "outside",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"absolute": "/bin/app", "outside": outside, "above": "../outside", "loop": "loop", "descriptor": "/proc/self/fd/0", "lib": "usr/lib",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := containerfs.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return dir, root
}

// A target is a regular file of the container. The open of a named pipe would make the daemon wait forever.
func TestTargets(t *testing.T) {
	dir, root := container(t)
	if os.Getuid() == 0 {
		// 1:5 is /dev/zero, which has no end.
		if err := unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
			t.Logf("no device: %v", err)
		}
	}
	for path, want := range map[string]string{
		"/bin/app": "app", "/absolute": "app", "bin/../../bin/app": "app",
		"/pipe": "!it isn't a regular file", "/bin": "!it isn't a regular file", "/zero": "!",
		"/outside": "!no such file", "/above": "!no such file", "/loop": "!too many levels", "/descriptor": "!", "/absent": "!no such file", "": "!no such file",
	} {
		file, err := openFile(root, path)
		if refused, isRefusal := strings.CutPrefix(want, "!"); isRefusal {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %v, want %q", path, err, refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if content, err := io.ReadAll(file); err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", path, content, err)
		}
		_ = file.Close()
	}
}

// A map in a volume isn't a target: nothing ends a reader for which the kernel prints an element.
func TestMapsAreNoTargets(t *testing.T) {
	dir, root := container(t)
	volume := filepath.Join(dir, "maps")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", volume, "bpf", 0, ""); err != nil {
		prerequisite.Missing(t, "mount a bpffs: "+err.Error(), prerequisite.BPF)
	}
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(volume, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/maps/b", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/maps/b", "/link"} {
		if _, err := openFile(root, path); err == nil || err.Error() != "it isn't a regular file" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A library is found without the container's process having it.
func TestLibraries(t *testing.T) {
	_, root := container(t)
	for target, want := range map[string]string{"libz": "/lib/x86_64-linux-gnu/libz.so.1", "libzstd.so": "/lib/libzstd.so.1", "/a/b": "/a/b", "libabsent": "", "lib": ""} {
		got, err := request{target: target, container: os.Getpid()}.resolve(root)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", target, got, err, want)
		}
	}
}

// The path of a library that the process has mapped can have spaces.
func TestMappedLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "with spaces", "libmapped.so.1")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mapped"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapping, err := unix.Mmap(int(file.Fd()), 0, len("mapped"), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapping) }()
	if got, err := (request{target: "libmapped", container: os.Getpid()}).resolve(nil); err != nil || got != path {
		t.Errorf("%q, %v, want %q", got, err, path)
	}
}

func TestParse(t *testing.T) {
	got, err := parse(strings.Fields("uprobe --program-pin-path /p --link-pin-path /l --offset 4 --target libc --container-pid 7 --fn-name malloc --retprobe"))
	if want := (request{"/p", "/l", "malloc", 4, "libc", 7, true}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{"", "kprobe", "uprobe --pid 7", "uprobe --unknown", "uprobe --offset x"} {
		if got, err := parse(strings.Fields(line)); err == nil {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
