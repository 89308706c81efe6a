// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"testing"

	"github.com/bpfman/bpfman-operator/cli/output"
)

// TestTablesFit checks that each table fits in a terminal of 100 columns, however long its cells are: they are shortened
// there to the width of the headers, but not below.
func TestTablesFit(t *testing.T) {
	const columns = 100
	for command, least := range map[string]int{
		"programs": narrowest(programsTable), "chain": narrowest(chainTable), "maps": narrowest(mapsTable), "maps --node": narrowest(nodeMapsTable),
		"top": narrowest(topTable), "dump": narrowest(dumpTable), "rollout history": narrowest(revisionsTable),
	} {
		if least > columns {
			t.Errorf("the table of %s has at least %d columns", command, least)
		}
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
