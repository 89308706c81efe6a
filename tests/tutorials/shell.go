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

// loop takes the names of files from its third descriptor, runs each in this very shell, and says on the fourth that it is
// done. What a file runs has neither, so that nothing in the background keeps them open.
const loop = `while IFS= read -r -u 3 block; do
  source "$block" </dev/null >"$block.out" 2>&1 3<&- 4>&-
  echo done >&4
done`

// The descriptors that loop uses, as exec.Cmd counts them.
const extraDescriptors = 2

// Shell is a bash that blocks of a page run in, one after another.
type Shell struct {
	command *exec.Cmd
	blocks  *os.File // written to: the names of files
	done    *bufio.Reader
	dir     string // where the blocks are kept
	count   int
}

// Start starts a shell in a directory, with these options of set. Blocks are kept in a directory of their own, so that the
// page's is only what the page makes of it.
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
	// A group of its own: what is left in the background ends with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err = command.Start()
	_, _ = blocksRead.Close(), doneWrite.Close()
	if err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return &Shell{command: command, blocks: blocksWrite, done: bufio.NewReader(doneRead), dir: blocks}, nil
}

// Run runs a block, and returns what it printed. It fails where one of the commands does, which ends the shell, or where
// the context ends.
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

// End ends the shell and everything that it has started.
func (s *Shell) End() {
	_ = s.blocks.Close()
	_ = s.command.Cancel()
	_ = s.command.Wait()
}
