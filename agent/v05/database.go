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
	// stateDir is what the daemon of v0.5 keeps beyond a reboot: its database,
	// with the images that it pulled. That of v0.6 has its database below
	// /run/bpfman.
	stateDir = "/var/lib/bpfman"
	// recognised is the file that each database of sled, which v0.5 uses, has.
	recognised = "conf"
)

// databaseFiles are the others.
var databaseFiles = []string{"db", "blobs", "snap.*"}

// RemoveDatabase removes the database of v0.5 below root, the host's file
// system, and tells whether there was one. Its programs are known by their pins,
// so nothing reads it any more. Files that aren't a database's stay, with the
// directories that they are in.
func RemoveDatabase(root string) (bool, error) {
	dir := filepath.Join(root, stateDir, "db")
	files, err := names(dir)
	if err != nil {
		return false, fmt.Errorf("remove the database of bpfman v0.5: %w", err)
	}
	if !slices.Contains(files, recognised) {
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
	// Last, so that a removal that is cut short is taken up again.
	if err := os.Remove(filepath.Join(dir, recognised)); err != nil {
		return false, fmt.Errorf("remove the database of bpfman v0.5: %w", err)
	}
	for _, empty := range []string{dir, filepath.Dir(dir)} {
		_ = os.Remove(empty) // it stays where there is more in it
	}
	return true, nil
}
