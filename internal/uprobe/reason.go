// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package uprobe passes what the daemon doesn't between the agent and bpfman-ns, the daemon's helper for uprobes in
// containers: which container the agent means, and the reason why a uprobe can't be attached there. The daemon (v0.6.0)
// writes what the helper prints to its log, and doesn't return it. Both containers mount the directory of the daemon's
// socket. The daemon serves one call at a time, so there is one container, and one reason.
package uprobe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// Dir is the directory of the daemon's socket.
const Dir = "/run/bpfman-sock"

// maxReason is the maximum length of a reason, in bytes.
const maxReason = 1024

func file(dir string) string { return filepath.Join(dir, "bpfman-ns.error") }

// Clear removes an earlier reason.
func Clear(dir string) error { return remove(file(dir)) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an earlier file: %w", err)
	}
	return nil
}

// Leave writes a reason. It replaces an earlier one.
func Leave(dir string, reason error) error {
	return write(file(dir), shorten.Middle(reason.Error(), maxReason))
}

// write replaces a file. It follows no link, because other containers mount the directory.
func write(path, content string) error {
	if err := remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("write for another container: %w", err)
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// Reason returns the reason of the last attempt on one line, or "" if it succeeded or left none.
func Reason(dir string) string { return read(file(dir)) }

func read(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	content, err := io.ReadAll(io.LimitReader(f, maxReason))
	if err != nil {
		return ""
	}
	// Parts of it are the container's owner's.
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(content), "")))
}
