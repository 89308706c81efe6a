// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

func start(t *testing.T, dir string) *Shell {
	t.Helper()
	shell, err := Start(t.Context(), dir, t.TempDir(), os.Environ(), strict...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shell.End)
	return shell
}

// TestShell checks that variables, functions, the directory, and background jobs stay from block to
// block.
func TestShell(t *testing.T) {
	dir := t.TempDir()
	shell := start(t, dir)
	for _, c := range []struct{ script, output string }{
		{"name=value\nexport exported=$name\nsay() { echo \"say $1\"; }\nmkdir sub && cd sub", ""},
		{`say "$exported"; echo "to standard error" >&2`, "say value\nto standard error\n"},
		{"mkfifo pipe; cat pipe >said &", ""},
		{"echo background >pipe; wait %1; cat said", "background\n"},
		{"basename \"$PWD\"; cat", "sub\n"},
	} {
		output, err := shell.Run(t.Context(), c.script)
		if err != nil || output != c.output {
			t.Errorf("%s\nprinted %q, error %v; want %q", c.script, output, err, c.output)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, error %v", files, err)
	}
}

// TestShell_Fails checks that a block fails at the first failing command, at a variable that isn't set,
// and within a pipe.
func TestShell_Fails(t *testing.T) {
	for _, script := range []string{"echo before; false; echo after", `echo before; echo "$unset_variable"`, "echo before; false | cat; echo after", "echo before; exit 0"} {
		shell := start(t, t.TempDir())
		output, err := shell.Run(t.Context(), script)
		if err == nil || output == "" || output[:7] != "before\n" {
			t.Errorf("%s: printed %q, error %v", script, output, err)
		}
		if _, err := shell.Run(t.Context(), "true"); err == nil {
			t.Errorf("%s: the next block ran", script)
		}
	}
}

// TestShell_Ends checks that blocks that take too long, and background jobs, are ended.
func TestShell_Ends(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	shell := start(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_, _ = os.ReadFile(pipe) // until the script has written
	}()
	output, err := shell.Run(ctx, "sleep 1000 & echo started; echo >pipe; sleep 1000")
	if output != "started\n" || !errors.Is(err, context.Canceled) {
		t.Errorf("printed %q, error %v", output, err)
	}
	shell.End()
}
