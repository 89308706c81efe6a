// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// What the tests say about a mutant.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "survived"
	// It survived, because no test executes what is changed.
	unexecuted verdict = "survived: not executed by a test"
	equivalent verdict = "equivalent"
	// The compiler refuses some changes, such as one that leaves a variable unused. They aren't counted.
	invalid verdict = "invalid"
)

// A trial runs the tests of a package, with one file replaced.
type trial struct {
	own   string   // the package, as an argument of go test
	also  []string // packages whose tests judge what its own tests don't notice: they can take longer
	args  []string // more arguments of go test
	limit time.Duration
}

// In an endless loop, a mutant can allocate memory until the machine has none left.
const memory = "ulimit -v 8388608 && exec \"$0\" \"$@\""

// run tests a mutant. The sources don't change: the compiler reads the changed file from elsewhere.
func (t *trial) run(ctx context.Context, m *mutant) (verdict, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	argument, err := overlay(directory, map[string][]byte{path: m.apply(source)})
	if err != nil {
		return "", err
	}
	output, err := t.test(ctx, []string{t.own}, argument)
	if err == nil && len(t.also) > 0 {
		output, err = t.test(ctx, t.also, argument)
	}
	switch {
	case err == nil:
		return survived, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bytes.Contains(output, []byte("[build failed]")):
		return invalid, nil
	case bytes.Contains(output, []byte("[setup failed]")):
		return "", fmt.Errorf("%s:%d: %w\n%s", m.file, m.line, err, output)
	}
	return killed, nil
}

// test runs the tests of packages, with more arguments, and returns what they print. Of a test that hangs, it ends all processes.
func (t *trial) test(ctx context.Context, packages []string, arguments ...string) ([]byte, error) {
	// Compiling counts for the command's time, but not for that of the tests.
	ctx, cancel := context.WithTimeout(ctx, t.limit+5*time.Minute)
	defer cancel()
	all := append([]string{"test", "-vet=off", "-ldflags=-s -w", "-failfast", "-timeout=" + t.limit.String(), "-exec=sh -c '" + memory + "'"}, t.args...)
	command := exec.CommandContext(ctx, "go", slices.Concat(all, arguments, packages)...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	return command.CombinedOutput()
}

// covered runs the tests without a change, and returns what of the package they execute.
func (t *trial) covered(ctx context.Context) (coverage, error) {
	profile, err := os.CreateTemp("", "mutate-*.cover")
	if err != nil {
		return nil, err
	}
	defer os.Remove(profile.Name())
	defer profile.Close()
	output, err := t.test(ctx, append([]string{t.own}, t.also...), "-coverprofile="+profile.Name(), "-coverpkg="+t.own)
	if err != nil {
		return nil, fmt.Errorf("the tests fail without a change: %w\n%s", err, output)
	}
	return readCoverage(profile)
}
