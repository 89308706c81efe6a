// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v05

import (
	"os"
	"path/filepath"
	"testing"
)

// Without a directory of links, pins are v0.5's, unless a later daemon has run, which has only attached TCX programs.
func TestPinsOfLaterDaemonsStay(t *testing.T) {
	bpffs := filepath.Join(t.TempDir(), "fs")
	for _, path := range []string{"prog_7", "maps/7/counter", "tcx-ingress/link_4026531840_1_7"} {
		path = filepath.Join(bpffs, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := find(bpffs); err != nil || len(found) != 2 {
		t.Errorf("found %q, %v, want the program and its maps", found, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(bpffs), lock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if moved, err := SetAside(bpffs); err != nil || len(moved) > 0 {
		t.Errorf("set aside %q, %v", moved, err)
	}
}
