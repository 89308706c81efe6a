// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package golden compares the output of commands with files in testdata. Tests use it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// Check compares got with testdata/name. `go test -update` writes the file.
func Check(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // it is part of the sources
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // it is part of the sources
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as in %s (go test -update writes it):\n%s\nwant:\n%s", path, got, want)
	}
}
