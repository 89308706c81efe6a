// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// loop reads the names of files from file descriptor 3, runs each in this shell, and reports the end on file
// descriptor 4. These descriptors are closed for what a file runs, so that background jobs don't keep them open.
const loop = `while IFS= read -r -u 3 block; do
  source "$block" </dev/null >"$block.out" 2>&1 3<&- 4>&-
  echo done >&4
done`

// The descriptors that loop uses.
const extraDescriptors = 2

// Shell is a bash in which the blocks of a page run, one after another.
type Shell struct {
	command *exec.Cmd
	blocks  *os.File // for writing the names of files
	done    *bufio.Reader
	dir     string // where the blocks are stored
	count   int
}

// Start starts a shell in a directory, with the given options of set. Blocks are stored in another directory, so
// that the page's directory contains only what the page creates.
func Start(ctx context.Context, dir, blocks string, environment []string, options ...string) (*Shell, error) {
	blocksRead, blocksWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("connect the shell: %w", err)
	}
	doneRead, doneWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("connect the shell: %w", err)
	}
	command := exec.CommandContext(ctx, "bash", append(options, "-c", loop)...)
	command.Dir, command.Env = dir, environment
	command.ExtraFiles = make([]*os.File, 0, extraDescriptors)
	command.ExtraFiles = append(command.ExtraFiles, blocksRead, doneWrite)
	// In its own process group, so that background jobs end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err = command.Start()
	_, _ = blocksRead.Close(), doneWrite.Close()
	if err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return &Shell{command: command, blocks: blocksWrite, done: bufio.NewReader(doneRead), dir: blocks}, nil
}

// Run runs a block, and returns its output. It returns an error if one of the commands fails, which ends the
// shell, or if the context ends.
func (s *Shell) Run(ctx context.Context, script string) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.command.Cancel() })
	defer stop()
	s.count++
	block := filepath.Join(s.dir, "block"+strconv.Itoa(s.count))
	if err := os.WriteFile(block, []byte(script), 0o600); err != nil {
		return "", fmt.Errorf("write block: %w", err)
	}
	if _, err := fmt.Fprintln(s.blocks, block); err != nil {
		return "", fmt.Errorf("pass a block to the shell: %w", err)
	}
	_, notDone := s.done.ReadString('\n')
	output, err := os.ReadFile(block + ".out")
	if err != nil && notDone == nil {
		return "", fmt.Errorf("read output: %w", err)
	}
	if notDone != nil {
		return string(output), errors.Join(errors.New("a command failed"), ctx.Err())
	}
	return string(output), nil
}

// End ends the shell, and everything that it has started.
func (s *Shell) End() {
	_ = s.blocks.Close()
	_ = s.command.Cancel()
	_ = s.command.Wait()
}
