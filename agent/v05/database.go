// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v05

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	// stateDir contains the data that the daemon of v0.5 keeps across reboots: its
	// database, with the pulled images. The daemon of v0.6 has its database below
	// /run/bpfman.
	stateDir = "/var/lib/bpfman"
	// recognized is a file in each sled database, which is the format that v0.5
	// uses.
	recognized = "conf"
)

// databaseFiles matches the other files of a sled database.
var databaseFiles = []string{"db", "blobs", "snap.*"}

// RemoveDatabase removes the database of v0.5 below root, which is the host's
// file system. It reports whether there was one. Nothing else needs the
// database, because programs are found by their pins. Other files stay, with
// their directories.
func RemoveDatabase(root string) (bool, error) {
	dir := filepath.Join(root, stateDir, "db")
	files, err := names(dir)
	if err != nil {
		return false, fmt.Errorf("remove the database of bpfman v0.5: %w", err)
	}
	if !slices.Contains(files, recognized) {
		return false, nil
	}
	for _, name := range files {
		if slices.ContainsFunc(databaseFiles, func(pattern string) bool {
			of, _ := filepath.Match(pattern, name) // the patterns are valid
			return of
		}) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return false, fmt.Errorf("remove the database of bpfman v0.5: %w", err)
			}
		}
	}
	// Last, so that an interrupted removal is continued at the next call.
	if err := os.Remove(filepath.Join(dir, recognized)); err != nil {
		return false, fmt.Errorf("remove the database of bpfman v0.5: %w", err)
	}
	for _, empty := range []string{dir, filepath.Dir(dir)} {
		_ = os.Remove(empty) // fails if there are other files
	}
	return true, nil
}
