// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v05

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree creates files, or directories if the path ends with a slash.
func tree(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range paths {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o750); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "/") {
			if err := os.MkdirAll(full, 0o750); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(full, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// has returns the files in a tree, and its empty directories.
func has(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil || relative == "." {
			return err
		}
		if entry.IsDir() {
			within, err := os.ReadDir(path)
			if err != nil || len(within) > 0 {
				return err
			}
			relative += "/"
		}
		paths = append(paths, relative)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// of05 contains what a daemon of v0.5.6 creates for a TCX program 31 with its
// own maps, a tracepoint program 32 that uses the maps of an unloaded program,
// XDP programs 33 and 34 on one interface, and a TC program 35.
var of05 = []string{
	"maps/30/shared",
	"maps/31/counts",
	"maps/33/xdp_stats",
	"maps/34/",
	"maps/35/",
	"prog_31",
	"prog_31_link",
	"prog_32",
	"prog_32_link",
	"prog_33",
	"prog_34",
	"prog_35",
	"tc-egress/",
	"tc-ingress/dispatcher_4026532999_2_1/link_35",
	"xdp/dispatcher_4026532999_2_2/link_33",
	"xdp/dispatcher_4026532999_2_2/link_34",
	"xdp/dispatcher_4026532999_2_link",
}

func TestSetAside(t *testing.T) {
	bpffs := tree(t, of05...)
	for range 2 { // repeated, as after a crash
		if _, err := SetAside(bpffs); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"maps/",
			"tc-egress/",
			"tc-ingress/",
			"v05/maps/30/shared",
			"v05/maps/31/counts",
			"v05/maps/33/xdp_stats",
			"v05/maps/34/",
			"v05/maps/35/",
			"v05/prog_31",
			"v05/prog_31_link",
			"v05/prog_32",
			"v05/prog_32_link",
			"v05/prog_33",
			"v05/prog_34",
			"v05/prog_35",
			"v05/tc-ingress/dispatcher_4026532999_2_1/link_35",
			"v05/xdp/dispatcher_4026532999_2_2/link_33",
			"v05/xdp/dispatcher_4026532999_2_2/link_34",
			// The daemon of v0.6 takes it over.
			"xdp/dispatcher_4026532999_2_link",
		}
		if got := has(t, bpffs); !slices.Equal(got, want) {
			t.Errorf("has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if ids, err := Programs(bpffs); err != nil || !slices.Equal(ids, []string{"31", "32", "33", "34", "35"}) {
		t.Errorf("programs %q, %v", ids, err)
	}

	// The daemon of v0.6 doesn't use the interface.
	for range 2 {
		if err := Remove(bpffs); err != nil {
			t.Fatal(err)
		}
		if got := has(t, bpffs); !slices.Equal(got, []string{"maps/", "tc-egress/", "tc-ingress/", "xdp/"}) {
			t.Errorf("has %q", got)
		}
	}
	if ids, err := Programs(bpffs); err != nil || len(ids) != 0 {
		t.Errorf("programs %q, %v", ids, err)
	}
}

// Files of the daemon of v0.6 stay on a node with files of v0.5.
func TestSetAsideLeavesV06(t *testing.T) {
	of06 := []string{
		"dispatcher-test/xdp",
		"links/1234567",
		"links/7654321",
		"maps/5/",
		"maps/41/counts",
		"maps/42/counts",
		"prog_5", // an ID as low as a position
		"prog_41",
		"prog_42",
		"tc-ingress/dispatcher_4026532999_2_1/link_0",
		"tc-ingress/dispatcher_4026532999_2_1/link_5",
		"xdp/dispatcher_4026532999_3_1/link_0",
		"xdp/dispatcher_4026532999_3_link",
	}
	bpffs := tree(t, of06...)
	if moved, err := SetAside(bpffs); err != nil || len(moved) != 0 {
		t.Errorf("moved %q, %v", moved, err)
	}
	if err := Remove(bpffs); err != nil {
		t.Error(err)
	}
	slices.Sort(of06)
	if got := has(t, bpffs); !slices.Equal(got, of06) {
		t.Errorf("has %q", got)
	}

	both := tree(t, append(slices.DeleteFunc(slices.Clone(of05), func(p string) bool {
		return strings.HasPrefix(p, "tc-ingress") // v0.6 uses the same path
	}), of06...)...)
	if _, err := SetAside(both); err != nil {
		t.Fatal(err)
	}
	// v0.6 replaces v0.5's dispatcher.
	for _, link := range []string{"xdp/dispatcher_4026532999_2_1/link_0"} {
		if err := os.MkdirAll(filepath.Join(both, filepath.Dir(link)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(both, link), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		of06 = append(of06, link, "xdp/dispatcher_4026532999_2_link")
	}
	if err := Remove(both); err != nil {
		t.Fatal(err)
	}
	// Nothing shows who owns the maps of a program that v0.5 unloaded, and a
	// program in a dispatcher that isn't v0.5's.
	of06 = append(of06, "maps/30/shared", "maps/35/", "prog_35", "tc-egress/")
	slices.Sort(of06)
	if got := has(t, both); !slices.Equal(got, of06) {
		t.Errorf("has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(of06, "\n"))
	}
}

func TestNothingLeft(t *testing.T) {
	for name, bpffs := range map[string]string{"empty": t.TempDir(), "absent": filepath.Join(t.TempDir(), "absent")} {
		if found, err := Found(bpffs, t.TempDir()); err != nil || found {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		moved, err := SetAside(bpffs)
		if err != nil || len(moved) != 0 {
			t.Errorf("%s: moved %q, %v", name, moved, err)
		}
		if err := Remove(bpffs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFound(t *testing.T) {
	for name, c := range map[string]struct{ bpffs, root string }{
		"pins":       {bpffs: "prog_31_link"},
		"dispatcher": {bpffs: "xdp/dispatcher_4026532999_2_1/link_33"},
		"filters":    {bpffs: "v05-filters/tc-ingress_2_1_35/"},
		"database":   {root: "var/lib/bpfman/db/conf"},
	} {
		t.Run(name, func(t *testing.T) {
			bpffs, root := t.TempDir(), t.TempDir()
			if c.bpffs != "" {
				bpffs = tree(t, c.bpffs)
			}
			if c.root != "" {
				root = tree(t, c.root)
			}
			if found, err := Found(bpffs, root); err != nil || !found {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
}

func TestRemoveDatabase(t *testing.T) {
	database := []string{
		"var/lib/bpfman/db/blobs/",
		"var/lib/bpfman/db/conf",
		"var/lib/bpfman/db/db",
		"var/lib/bpfman/db/snap.0000000000005A63",
	}
	for name, c := range map[string]struct {
		has, left []string
		removed   bool
	}{
		"v0.5's":           {database, []string{"var/lib/"}, true},
		"cut short":        {[]string{"var/lib/bpfman/db/conf"}, []string{"var/lib/"}, true},
		"with others":      {append(slices.Clone(database), "var/lib/bpfman/notes"), []string{"var/lib/bpfman/notes"}, true},
		"others within":    {append(slices.Clone(database), "var/lib/bpfman/db/notes"), []string{"var/lib/bpfman/db/notes"}, true},
		"no database":      {[]string{"var/lib/bpfman/db/notes"}, []string{"var/lib/bpfman/db/notes"}, false},
		"never had bpfman": {[]string{"var/lib/"}, []string{"var/lib/"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, c.has...)
			removed, err := RemoveDatabase(root)
			if err != nil || removed != c.removed {
				t.Errorf("removed %v, %v", removed, err)
			}
			if got := has(t, root); !slices.Equal(got, c.left) {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if removed, err := RemoveDatabase(root); err != nil || removed {
				t.Errorf("removed again: %v, %v", removed, err)
			}
		})
	}
}

func TestRunning(t *testing.T) {
	bpffs := t.TempDir()
	proc := tree(t, "1/comm", "self/comm", "22/comm", "33/comm")
	comm := func(pid, name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := func(pid, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(proc, pid, "root")); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want bool) {
		t.Helper()
		if got, err := Running(proc, bpffs); err != nil || got != want {
			t.Errorf("running: %v, %v, want %v", got, err, want)
		}
	}
	comm("1", "systemd")
	root("1", "/")
	is(false)
	comm("22", "bpfman-rpc") // with another file system, for example another cluster's
	root("22", tree(t))
	is(false)
	comm("33", "bpfman-rpc")
	root("33", "/")
	is(true)
	if _, err := Running(proc, filepath.Join(bpffs, "absent")); err == nil {
		t.Error("no error where there is no file system")
	}
}
