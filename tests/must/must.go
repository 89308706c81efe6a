// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package must ends tests when what they need fails.
package must

import (
	"os"
	"testing"
)

// Succeed ends the test if there is an error.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Read returns the content of a file.
func Read(tb testing.TB, path string) []byte {
	tb.Helper()
	content, err := os.ReadFile(path)
	Succeed(tb, err)
	return content
}
