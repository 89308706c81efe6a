// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/dirents"
)

// A node has thousands of descriptors. For each file, package os would make additional
// system calls to find out whether it can be polled.

// numbers returns the entries of a directory that are numbers.
func numbers(dir string) ([]int, error) {
	fd, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return numbersIn(fd)
}

func openDirectory(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) //nolint:wrapcheck // the caller adds context
}

func numbersIn(fd int) ([]int, error) {
	all, _, err := numbersWithin(fd, func(int) bool { return true })
	return all, err
}

// numbersWithin returns the entries of an open directory that are numbers, as long as more permits one after a count, and whether
// it has others.
func numbersWithin(fd int, more func(count int) bool) (found []int, others bool, err error) {
	err = dirents.Each(fd, func(entry dirents.Entry) bool {
		number, err := strconv.Atoi(entry.Name)
		if err != nil {
			return true
		}
		if others = !more(len(found)); !others {
			found = append(found, number)
		}
		return !others
	})
	return found, others, err
}

// maxLink is longer than any link target for an eBPF object or a namespace.
const maxLink = 128

func readLink(path string) (string, error) { return readLinkAt(unix.AT_FDCWD, path) }

func readLinkAt(dir int, path string) (string, error) {
	var target [maxLink]byte
	n, err := unix.Readlinkat(dir, path, target[:])
	if err != nil {
		return "", err //nolint:wrapcheck // callers distinguish errors
	}
	return string(target[:n]), nil
}

// readFile reads a file with one system call, up to a page.
func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers distinguish errors
	}
	defer unix.Close(fd)
	text := make([]byte, 4096)
	n, err := unix.Read(fd, text)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers distinguish errors
	}
	return text[:n], nil
}
