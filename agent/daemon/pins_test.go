// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Only the pins of programs and links that no list has anymore are orphans: not those of the daemon's programs and
// links, of programs whose maps are in use, of another version, or of others.
func TestOrphans(t *testing.T) {
	root, now := t.TempDir(), time.Now()
	created := now.Add(-time.Hour)
	put := func(at time.Time, paths ...string) {
		t.Helper()
		for _, path := range paths {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(filepath.Dir(path), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	owner := uint32(8)
	list := &gobpfman.ListResponse{Results: []*gobpfman.ListResponse_ListResult{
		{Info: &gobpfman.ProgramInfo{Links: []uint32{12}}, KernelInfo: &gobpfman.KernelProgramInfo{Id: 7}},
		{Info: &gobpfman.ProgramInfo{MapOwnerId: &owner}, KernelInfo: &gobpfman.KernelProgramInfo{Id: 9}},
	}}
	fs := "run/bpfman/fs/"
	put(now, fs+"prog_7", fs+"maps/7/m", fs+"prog_9", fs+"maps/8/m", fs+"links/12", fs+"maps/other/m", fs+"prog_7_link", fs+"prog_", fs+"xdp/prog_11/x")
	put(now, fs+"prog_10", fs+"maps/10/m", fs+"maps/13/m", fs+"links/7")
	put(now, fs+"tcx-ingress/link_4026531840_1_7", fs+"tcx-egress/link_4026531840_12_11")
	put(created.Add(-time.Hour), fs+"prog_3", fs+"maps/3/m", fs+"links/3")

	if pins, err := pinned(root, rust{}, 0); pins != nil || err != nil {
		t.Errorf("without a database: %+v, %v", pins, err)
	}
	put(created, "run/bpfman/db/conf")
	pins, err := pinned(root, rust{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"prog_10", "maps/10", "maps/13", "tcx-egress/link_4026531840_12_11"} {
		want = append(want, filepath.Join(root, fs, name))
	}
	programs, links := orphans(pins, list)
	if !slices.Equal(programs, want) || !slices.Equal(links, []uint32{7}) {
		t.Errorf("orphans are %q, %v, want %q, 7", programs, links, want)
	}

	// The clock is set back after the database is created.
	put(created.Add(-time.Hour), fs+"prog_7", fs+"prog_9", fs+"prog_10", fs+"maps/10/m", fs+"maps/13/m", fs+"links/7", fs+"links/12")
	pins, err = pinned(root, rust{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	programs, links = orphans(pins, list)
	slices.Sort(links)
	if !slices.Equal(programs, want) || !slices.Equal(links, []uint32{3, 7}) {
		t.Errorf("with the clock set back, orphans are %q, %v, want %q, 3, and 7", programs, links, want)
	}
}

// After the daemon was changed, pins in the same directories are those of the former one, or of others that used it. Each
// daemon's own file doesn't make them orphans. What was loaded later, and isn't listed, the new daemon left when it was killed.
func TestPinsOfTheFormerDaemonAreNoOrphans(t *testing.T) {
	for name, d := range map[string]*daemontest.Daemon{"from Rust to Go": daemontest.NewGo(t.TempDir()), "from Go to Rust": daemontest.New(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pins := []string{"run/bpfman/fs/prog_7", "run/bpfman/fs/links/12", "run/bpfman/fs/maps/7/m"}
				for _, path := range append(slices.Clone(databases), pins...) {
					writeFile(t, filepath.Join(d.Root, path))
				}
				file := filepath.Join(t.TempDir(), "former")
				start := func() *Inventory {
					i := NewInventory(d, d.Root)
					if err := i.RecordFormer(file, "/proc"); err != nil {
						t.Fatal(err)
					}
					refresh(t, i)
					return i
				}
				i := start()
				later := "run/bpfman/fs/prog_8"
				for range 2 {
					writeFile(t, filepath.Join(d.Root, later))
					refresh(t, i)
					<-time.After(othersLoad)
					refresh(t, i)
					for _, path := range pins {
						if _, err := os.Stat(filepath.Join(d.Root, path)); err != nil {
							t.Error(err)
						}
					}
					if _, err := os.Stat(filepath.Join(d.Root, later)); err == nil {
						t.Errorf("%s is left", later)
					}
					i = start()
				}
			})
		})
	}
}

// What others load is pinned, and not in the list of the daemon in Go before all of the Load is. What a daemon that was killed
// left stays unlisted.
func TestPinsOfALoadInProgressAreNoOrphans(t *testing.T) {
	for name, start := range map[string]func(string) *daemontest.Daemon{"Rust": daemontest.New, "Go": daemontest.NewGo} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := start(t.TempDir())
				database, waits := rust{}.database(), time.Duration(0)
				if name == "Go" {
					database, waits = newGolang().database(), othersLoad
				}
				writeFile(t, filepath.Join(d.Root, database))
				pin, maps := filepath.Join(d.Root, "run/bpfman/fs/prog_90"), filepath.Join(d.Root, "run/bpfman/fs/maps/90")
				there := func() bool {
					_, err := os.Lstat(pin)
					_, mapsErr := os.Lstat(maps)
					return err == nil && mapsErr == nil
				}
				writeFile(t, pin)
				writeFile(t, filepath.Join(maps, "counter"))
				i := known(t, d, d.Root)
				if there() != (waits > 0) {
					t.Errorf("pinned after the first list: %v", there())
				}
				for began := time.Now(); time.Since(began) < waits; <-time.After(time.Minute) {
					if refresh(t, i); !there() {
						t.Fatalf("removed after %s", time.Since(began))
					}
				}
				if refresh(t, i); there() {
					t.Error("what a daemon that was killed left stays")
				}
			})
		})
	}
}

// A program has links only when it is loaded. One that a daemon that was killed left stays attached until the link is removed.
func TestLinksOfUnlistedProgramsAreOrphans(t *testing.T) {
	d := daemontest.NewGo(t.TempDir())
	writeFile(t, filepath.Join(d.Root, newGolang().database()))
	link := filepath.Join(d.Root, "run/bpfman/fs/tcx-ingress/link_4026531840_1_90")
	writeFile(t, link)
	known(t, d, d.Root)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link stays: %v", err)
	}
}

// writeFile writes an empty file, with its directory.
func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
