// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testLink = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)

// TestPromisesAreTested checks that the tests in each row of the table of promises exist.
func TestPromisesAreTested(t *testing.T) {
	const path = "docs/reliability.md"
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
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
		tests := testLink.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test of %q", path, strings.TrimSpace(cells[1]))
		}
		for _, test := range tests {
			source, err := os.ReadFile(filepath.Join(root, filepath.Dir(path), test[2]))
			if err != nil {
				t.Errorf("%s: %s: %v", path, test[1], err)
			} else if !strings.Contains(string(source), "\nfunc "+test[1]+"(t *testing.T)") {
				t.Errorf("%s: %s isn't in %s", path, test[1], test[2])
			}
		}
	}
	if rows < 10 {
		t.Errorf("%s: the table of promises has %d rows", path, rows)
	}
}
