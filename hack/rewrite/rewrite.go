// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rewrite changes files of the repository that are partly generated.
package rewrite

import (
	"fmt"
	"os"
)

// File replaces the text of a file with what a function makes of it. A file that already has this text isn't written.
func File(file string, with func(text string) (string, error)) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read what is partly generated: %w", err)
	}
	after, err := with(string(before))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if after == string(before) {
		return nil
	}
	if err := os.WriteFile(file, []byte(after), 0o644); err != nil { //nolint:gosec // it is in the repository
		return fmt.Errorf("write what is generated: %w", err)
	}
	return nil
}
