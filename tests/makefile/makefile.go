// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package makefile reads the repository's Makefile for tests.
package makefile

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Targets returns the names of the targets of the Makefile in a directory, with those of the files that it includes.
func Targets(tb testing.TB, directory string) map[string]bool {
	tb.Helper()
	command := exec.CommandContext(tb.Context(), "make", "--print-data-base", "--question", "--no-builtin-rules", "-C", directory, "help")
	// The make that runs this test can have other targets and variables.
	command.Env = append(os.Environ(), "MAKEFLAGS=", "MAKEOVERRIDES=")
	// It fails, because help isn't up to date.
	output, err := command.Output()
	targets := map[string]bool{}
	before := ""
	for line := range strings.Lines(string(output)) {
		if name, _, found := strings.Cut(line, ":"); found && before != "# Not a target:\n" && !strings.ContainsAny(name, " #\t$%=") {
			targets[name] = true
		}
		before = line
	}
	if !targets["help"] {
		tb.Fatalf("make prints no targets: %v\n%s", err, output)
	}
	return targets
}
