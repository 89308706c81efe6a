// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package dirents lists the entries of open directories, with fewer system calls and less memory than
// [os.File].
package dirents

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Entry is an entry of a directory.
type Entry struct {
	Name string
	// Type is the type that the file system stores in the directory, such as [unix.DT_DIR], or [unix.DT_UNKNOWN].
	Type uint8
}

// Each calls visit with each entry of an open directory, except for "." and "..", from the current position, until visit
// returns false.
func Each(fd int, visit func(Entry) bool) error {
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
		for rest := buffer[:n]; len(rest) > 0; {
			var entry Entry
			entry, rest = first(rest)
			if entry.Name != "." && entry.Name != ".." && !visit(entry) {
				return nil
			}
		}
	}
}

// first returns the first entry of what the kernel returns, and what comes after it. An entry (struct linux_dirent64) has an
// inode number and an offset of 8 bytes each, its length of 2 bytes, its type, and its name, which ends with a zero.
func first(entries []byte) (Entry, []byte) {
	length := binary.NativeEndian.Uint16(entries[16:])
	name, _, _ := bytes.Cut(entries[19:length], []byte{0})
	return Entry{Name: string(name), Type: entries[18]}, entries[length:]
}
