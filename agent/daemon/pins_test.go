// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Only the pins of programs that no list has any more are removed: not those of the daemon's programs, of programs whose
// maps are in use, of a Load that just began, of another version, or of others.
func TestOrphansAreRemoved(t *testing.T) {
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
		{Info: &gobpfman.ProgramInfo{}, KernelInfo: &gobpfman.KernelProgramInfo{Id: 7}},
		{Info: &gobpfman.ProgramInfo{MapOwnerId: &owner}, KernelInfo: &gobpfman.KernelProgramInfo{Id: 9}},
	}}
	fs := "run/bpfman/fs/"
	put(now.Add(-time.Minute), fs+"prog_7", fs+"maps/7/m", fs+"prog_9", fs+"maps/8/m", fs+"links/12", fs+"maps/other/m", fs+"prog_7_link", fs+"prog_", fs+"xdp/prog_11/x")
	put(now.Add(-time.Minute), fs+"prog_10", fs+"maps/10/m", fs+"maps/13/m")
	put(now.Add(-time.Second), fs+"prog_14", fs+"maps/14/m")
	put(created.Add(-time.Hour), fs+"prog_3", fs+"maps/3/m")

	if removed, err := removeOrphans(root, list, now); err != nil || removed != nil {
		t.Errorf("without a database: %q, %v", removed, err)
	}
	put(created, "run/bpfman/db/conf")
	removed, err := removeOrphans(root, list, now)
	if want := []string{"prog_10", "maps/10", "maps/13"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v, want %q", removed, err, want)
	}
	for _, gone := range removed {
		if _, err := os.Stat(filepath.Join(root, fs, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if removed, err := removeOrphans(root, list, now); err != nil || removed != nil {
		t.Errorf("again: %q, %v", removed, err)
	}
}
