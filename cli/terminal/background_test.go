// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// role is the variable that makes the test's program a process of the session.
const role = "BACKGROUND_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "shell": // starts a command in the background: in a process group that isn't the terminal's
		command := exec.Command(os.Args[0]) //nolint:noctx // the test kills the session
		command.Env = append(os.Environ(), role+"=command")
		command.Stdin, command.Stdout = os.Stdin, os.Stdout
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := command.Run(); err != nil {
			os.Exit(1)
		}
	case "keys":
		echoKeys()
	case "command":
		if _, _, ok := Keys(os.Stdin, os.Stdout, nil); ok {
			os.Exit(1) // it would change the settings of the shell's terminal
		}
		ReadInBackground()
		_, err := os.Stdin.Read(make([]byte, 1))
		if !errors.Is(err, syscall.EIO) {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// pseudoTerminal returns a terminal, and what its user has.
func pseudoTerminal(t *testing.T) (terminal, user *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal, user
}

// session returns a process of this test's program, with a terminal of its own.
func session(ctx context.Context, as string, terminal *os.File) *exec.Cmd {
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), role+"="+as)
	command.Stdin, command.Stdout = terminal, terminal
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return command
}

// A command that reads from its terminal goes on if it runs in the background of a shell, instead of being stopped.
func TestReadInBackground(t *testing.T) {
	terminal, _ := pseudoTerminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := session(ctx, "shell", terminal).Run(); err != nil {
		t.Errorf("the command in the background: %v, %v", err, context.Cause(ctx))
	}
}
