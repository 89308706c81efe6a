// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package nearest finds the name that somebody probably meant.
package nearest

import (
	"iter"
	"strings"
)

// Name returns the name that is the most similar to a misspelled one, regardless of case, or "" if none is similar. Of equally
// similar names, it is the first in alphabetical order, so that a message doesn't change with the order
// of names.
func Name(misspelled string, names iter.Seq[string]) string {
	wanted := strings.ToLower(misspelled)
	best, least := "", len(wanted)/2+1
	for name := range names {
		d := distance(wanted, strings.ToLower(name), least+1)
		if d < least || d == least && best != "" && name < best {
			best, least = name, d
		}
	}
	return best
}

// Question returns "; did you mean NAME?", or "" if no name is similar.
func Question(misspelled string, names iter.Seq[string]) string {
	if name := Name(misspelled, names); name != "" {
		return "; did you mean " + name + "?"
	}
	return ""
}

// distance returns the Levenshtein distance of two names, or a number that isn't below limit.
func distance(a, b string, limit int) int {
	if difference := len(a) - len(b); max(difference, -difference) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
