// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadInBackground makes reading from the terminal fail while the process is in the background of a shell. By default,
// SIGTTIN stops the process then.
func ReadInBackground() { signal.Ignore(syscall.SIGTTIN) }

// inForeground reports whether the process may change the settings of a terminal: the shell doesn't use it meanwhile.
func inForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}
