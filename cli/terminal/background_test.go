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
	case "command":
		ReadInBackground()
		_, err := os.Stdin.Read(make([]byte, 1))
		if !errors.Is(err, syscall.EIO) {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// A command that reads from its terminal goes on if it runs in the background of a shell, instead of being stopped.
func TestReadInBackground(t *testing.T) {
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close()
	if err := unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	shell := exec.CommandContext(ctx, os.Args[0])
	shell.Env = append(os.Environ(), role+"=shell")
	shell.Stdin = terminal
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Run(); err != nil {
		t.Errorf("the command in the background: %v, %v", err, context.Cause(ctx))
	}
}
