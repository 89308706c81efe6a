// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build unix

package terminal

import (
	"os/signal"
	"syscall"
)

// ReadInBackground makes reading from the terminal fail while the process is in the background of a shell. By default,
// SIGTTIN stops the process then.
func ReadInBackground() { signal.Ignore(syscall.SIGTTIN) }
