// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bpfman/bpfman-operator/cli/output"
)

// TestTablesFit checks that each table fits in its width, however long its cells are: they can be shortened to the
// width of the headers, but not below. So are all tables that other tests expect.
func TestTablesFit(t *testing.T) {
	for command, least := range map[string]int{
		"programs": narrowest(programsTable), "chain": narrowest(chainTable), "maps": narrowest(mapsTable), "maps --node": narrowest(nodeMapsTable),
		"top": narrowest(topTable), "dump": narrowest(dumpTable), "rollout history": narrowest(revisionsTable),
	} {
		if least > output.Columns {
			t.Errorf("the table of %s has at least %d columns", command, least)
		}
	}
	tables := 0
	for _, dir := range []string{"testdata", "testdata/maps", "testdata/image"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.Contains(file, "wide") {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(content)) {
				if !strings.Contains(line, "   ") {
					continue // a sentence
				}
				tables++
				if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > output.Columns {
					t.Errorf("%s has a table of %d columns: %s", file, width, line)
				}
			}
		}
	}
	if tables == 0 {
		t.Error("there are no tables")
	}
}

// narrowest returns the least width of a table.
func narrowest[T any](table output.Table[T]) int {
	const between, leastWidth = 3, 3
	width := -between
	for _, c := range table.Columns {
		if !c.Wide && !c.Heading {
			width += max(len(c.Name), leastWidth) + between
		}
	}
	return width
}
