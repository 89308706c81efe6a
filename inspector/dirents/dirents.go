// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package dirents lists the entries of open directories, with fewer system calls and less memory than
// [os.File].
package dirents

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Each calls visit with each name in an open directory, except for "." and "..", from the current position, until visit
// returns false.
func Each(fd int, visit func(name string) bool) error {
	var names []string
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller knows which
		}
		if n <= 0 {
			return nil
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names[:0])
		for _, name := range names {
			if !visit(name) {
				return nil
			}
		}
	}
}
