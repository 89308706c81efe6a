// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestPromisesAreTested checks that each row of the tables of promises names a test. TestNamedTests checks that it exists.
func TestPromisesAreTested(t *testing.T) {
	const path = "docs/reliability.md"
	text := string(must.Read(t, filepath.Join(root, path)))
	for heading, least := range map[string]int{"## Failures and their effects": 10, "## What each step needs": 30} {
		_, table, found := strings.Cut(text, heading+"\n")
		if !found {
			t.Fatalf("%s has no table of promises: %s", path, heading)
		}
		table, _, _ = strings.Cut(table, "\n## ")
		rows := 0
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			tests := cells[len(cells)-1]
			if len(cells) < 2 || strings.Contains(cells[0], "---") || strings.TrimSpace(tests) == "Tests" {
				continue
			}
			rows++
			if !testLink.MatchString(tests) {
				t.Errorf("%s: no test of %q", path, strings.TrimSpace(line))
			}
		}
		if rows < least {
			t.Errorf("%s: the table of %q has %d rows", path, heading, rows)
		}
	}
}
