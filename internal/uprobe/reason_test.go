// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package uprobe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReason(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ reason, want string }{
		{"the container has no library libx", "the container has no library libx"},
		{"of /a\nb\x1b[31m\u202ec\xff", "of /a b [31m c"},
	} {
		if err := Leave(dir, errors.New(c.reason)); err != nil {
			t.Fatal(err)
		}
		if got := Reason(dir); got != c.want {
			t.Errorf("%q: %q, want %q", c.reason, got, c.want)
		}
	}
	if err := Leave(dir, errors.New(strings.Repeat("x", 1<<20))); err != nil || len(Reason(dir)) > maxReason {
		t.Errorf("%v, %d bytes", err, len(Reason(dir)))
	}
	for range 2 {
		if err := Clear(dir); err != nil || Reason(dir) != "" {
			t.Errorf("%v, %q", err, Reason(dir))
		}
	}
}

// Other containers mount the directory. What they put there isn't followed, and nobody waits for it.
func TestReasonOfAnother(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink(outside, path) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := put(file(dir)); err != nil {
			t.Fatal(err)
		}
		if got := Reason(dir); got != "" {
			t.Errorf("%s: %q", name, got)
		}
		if err := Leave(dir, errors.New("new")); err != nil || Reason(dir) != "new" {
			t.Errorf("%s: %v, %q", name, err, Reason(dir))
		}
	}
	if content, err := os.ReadFile(outside); err != nil || string(content) != "secret" {
		t.Errorf("%q, %v", content, err)
	}
}
