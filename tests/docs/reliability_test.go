// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestPromisesAreTested checks that each row of the table of promises names a test. TestNamedTests checks that it exists.
func TestPromisesAreTested(t *testing.T) {
	const path = "docs/reliability.md"
	text := must.Read(t, filepath.Join(root, path))
	_, table, found := strings.Cut(string(text), "## Failures and their effects\n")
	if !found {
		t.Fatalf("%s has no table of promises", path)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[3]) == "Tests" {
			continue
		}
		rows++
		if !testLink.MatchString(cells[3]) {
			t.Errorf("%s: no test of %q", path, strings.TrimSpace(cells[1]))
		}
	}
	if rows < 10 {
		t.Errorf("%s: the table of promises has %d rows", path, rows)
	}
}
