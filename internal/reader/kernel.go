// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reader

import (
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Kernel returns what identifies this build of the kernel: its release and version, as uname prints them.
func Kernel() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", problem.Errorf(problem.KernelUnknown, "read the kernel's version: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Version[:]), nil
}
