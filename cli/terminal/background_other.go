// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build !unix

package terminal

import "os"

// ReadInBackground does nothing: without job control, nothing stops a process that reads from the terminal.
func ReadInBackground() {}

// inForeground returns true, for the same reason.
func inForeground(*os.File) bool { return true }
