// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package uprobe passes the reason why a uprobe can't be attached in a container from bpfman-ns, the daemon's helper, to
// the agent. The daemon (v0.6.0) writes what the helper prints to its log, and doesn't return it. Both containers mount
// the directory of the daemon's socket. The daemon serves one call at a time, so there is one reason.
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
func Clear(dir string) error {
	if err := os.Remove(file(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an earlier reason: %w", err)
	}
	return nil
}

// Leave writes a reason. It replaces an earlier one, and follows no link, because other containers mount the directory.
func Leave(dir string, reason error) error {
	if err := Clear(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(file(dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("write a reason: %w", err)
	}
	_, err = f.WriteString(shorten.Middle(reason.Error(), maxReason))
	return errors.Join(err, f.Close())
}

// Reason returns the reason of the last attempt on one line, or "" if it succeeded or left none.
func Reason(dir string) string {
	f, err := os.OpenFile(file(dir), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
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
