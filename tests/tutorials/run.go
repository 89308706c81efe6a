// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Timeouts of a page, and of one of its blocks. Rust's compiler took four minutes on a busy machine.
const (
	pageTimeout  = 15 * time.Minute
	blockTimeout = 10 * time.Minute
)

// strict are the options for blocks: the first command that fails ends the tutorial.
var strict = []string{"-eu", "-o", "pipefail"}

// Run runs the page in the directory, and cleans up in any case. The error is that of [Follow].
func Run(ctx context.Context, page Page, dir, blocks string, environment []string, log func(format string, arguments ...any)) error {
	running, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	failed := Follow(running, page.Steps, dir, blocks, environment, log)
	if failed == nil {
		return nil
	}
	var clean []Step
	for _, step := range page.Steps {
		if step.CleansUp() {
			step.Output = nil
			clean = append(clean, step)
		}
	}
	// If the tutorial failed, some objects might not exist.
	if err := run(ctx, clean, dir, blocks, environment, log); err != nil {
		failed = errors.Join(failed, fmt.Errorf("clean up: %w", err))
	}
	return failed
}

// Follow runs steps in the directory. The error says which step failed, or printed something else than the page shows.
func Follow(ctx context.Context, steps []Step, dir, blocks string, environment []string, log func(format string, arguments ...any)) error {
	return run(ctx, steps, dir, blocks, environment, log, strict...)
}

func run(ctx context.Context, steps []Step, dir, blocks string, environment []string, log func(string, ...any), options ...string) error {
	blocks, err := os.MkdirTemp(blocks, "")
	if err != nil {
		return fmt.Errorf("make a directory of blocks: %w", err)
	}
	shell, err := Start(ctx, dir, blocks, environment, options...)
	if err != nil {
		return err
	}
	defer shell.End()
	for _, step := range steps {
		if err := step.do(ctx, shell, dir, log); err != nil {
			return fmt.Errorf("line %d, %s: %w", step.Line, step.Section, err)
		}
	}
	return nil
}

func (s Step) do(ctx context.Context, shell *Shell, dir string, log func(string, ...any)) error {
	if s.File != "" {
		return s.save(dir)
	}
	ctx, cancel := context.WithTimeout(ctx, blockTimeout)
	defer cancel()
	began := time.Now()
	output, err := shell.Run(ctx, s.Script)
	log("line %d, %s (%s)\n%s---\n%s", s.Line, s.Section, time.Since(began).Round(time.Millisecond), s.Script, output)
	if err != nil {
		return fmt.Errorf("%w in\n%s\nThe output is\n%s", err, s.Script, output)
	}
	if s.Output != nil {
		if difference := Difference(*s.Output, output); difference != "" {
			return fmt.Errorf("output of\n%s\n%s", s.Script, difference)
		}
	}
	return nil
}

func (s Step) save(dir string) error {
	path := filepath.Join(dir, s.File)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("save %s: %w", s.File, err)
	}
	if err := os.WriteFile(path, []byte(s.Content), 0o600); err != nil {
		return fmt.Errorf("save %s: %w", s.File, err)
	}
	return nil
}
