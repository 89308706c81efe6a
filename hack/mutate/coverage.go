// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// A coverage says which blocks of a file the tests execute, by the file's import path.
type coverage map[string][]block

type block struct {
	startLine, startColumn, endLine, endColumn, statements, count int
}

// readCoverage reads a profile of go test.
func readCoverage(profile io.Reader) (coverage, error) {
	blocks := coverage{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		file, numbers, ok := strings.Cut(lines.Text(), ".go:")
		if !ok {
			continue // the mode
		}
		var b block
		if _, err := fmt.Sscanf(numbers, "%d.%d,%d.%d %d %d", &b.startLine, &b.startColumn, &b.endLine, &b.endColumn, &b.statements, &b.count); err != nil {
			return nil, fmt.Errorf("read the coverage of %s: %q: %w", file, numbers, err)
		}
		blocks[file+".go"] = append(blocks[file+".go"], b)
	}
	return blocks, lines.Err()
}

// skips says whether the tests execute no block with this place. What is outside of blocks, such as a variable of
// the package, counts as executed.
func (c coverage) skips(file string, line, column int) bool {
	inside := false
	for _, b := range c[file] {
		after := line > b.startLine || line == b.startLine && column >= b.startColumn
		before := line < b.endLine || line == b.endLine && column < b.endColumn
		if !after || !before {
			continue
		}
		if b.count > 0 {
			return false
		}
		inside = true
	}
	return inside
}
