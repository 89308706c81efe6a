// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// Clients distinguish a map that isn't there, for example because its program was reloaded, from other failures.
func TestExitCode(t *testing.T) {
	t.Parallel()
	prerequisite.NeedsRoot(t, "maps are opened by their ID")
	for name, run := range map[string]command{"dump": dump, "tail": tail} {
		for _, which := range [][]string{{"--pin", "/run/bpfman/fs/none", "--host-proc", t.TempDir()}, {"--map", "4294967295"}} {
			err := run(t.Context(), which, strings.NewReader(""), &bytes.Buffer{})
			if code := exitCode(err); err == nil || code != live.ExitAbsent {
				t.Errorf("%s %q: %v, exit code %d", name, which, err, code)
			}
		}
		for _, which := range [][]string{nil, {"--map", "1", "--pin", "/a"}, {"--map", "4294967296"}} {
			err := run(t.Context(), which, strings.NewReader(""), &bytes.Buffer{})
			if code := exitCode(err); err == nil || code == live.ExitAbsent {
				t.Errorf("%s %q: %v, exit code %d", name, which, err, code)
			}
		}
	}
	if err := dump(t.Context(), []string{"--section", ".bss", "--map", "1"}, strings.NewReader(""), &bytes.Buffer{}); err == nil {
		t.Error("dump takes a section and a map")
	}
}
