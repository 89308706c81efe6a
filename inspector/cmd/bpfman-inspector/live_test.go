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
	for _, which := range [][]string{{"--pin", "/run/bpfman/fs/none", "--host-proc", t.TempDir()}, {"--map", "4294967295"}} {
		err := dump(t.Context(), which, strings.NewReader(""), &bytes.Buffer{})
		if code := exitCode(err); err == nil || code != live.ExitAbsent {
			t.Errorf("%q: %v, exit code %d", which, err, code)
		}
	}
	err := dump(t.Context(), nil, strings.NewReader(""), &bytes.Buffer{})
	if code := exitCode(err); err == nil || code == live.ExitAbsent {
		t.Errorf("without a map: %v, exit code %d", err, code)
	}
}
