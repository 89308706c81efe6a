// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package makefile runs make for tests.
package makefile

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Command returns a command of make in a directory, with other variables than those of the make that runs this test.
func Command(tb testing.TB, directory string, arguments ...string) *exec.Cmd {
	tb.Helper()
	command := exec.CommandContext(tb.Context(), "make", append([]string{"--no-print-directory", "-C", directory}, arguments...)...)
	command.Env = append(os.Environ(), "MAKEFLAGS=", "MAKEOVERRIDES=")
	return command
}

// DryRun returns the commands that make would run in a directory, with these environment variables.
func DryRun(tb testing.TB, directory string, environment []string, arguments ...string) string {
	tb.Helper()
	command := Command(tb, directory, append([]string{"--dry-run"}, arguments...)...)
	command.Env = append(command.Env, environment...)
	output, err := command.Output()
	if err != nil {
		tb.Fatalf("make --dry-run %s: %v", strings.Join(arguments, " "), err)
	}
	return string(output)
}

// Targets returns the names of the targets of the Makefile in a directory, with those of the files that it includes.
func Targets(tb testing.TB, directory string) map[string]bool {
	tb.Helper()
	// It fails, because help isn't up to date.
	output, err := Command(tb, directory, "--print-data-base", "--question", "--no-builtin-rules", "help").Output()
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
