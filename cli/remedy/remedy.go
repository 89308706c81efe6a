// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package remedy provides the solutions for the problems that bpfman reports. They come from the tables of internal/problem.
package remedy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Remedy is the solution for messages.
type Remedy struct {
	// patterns match messages. One match is enough.
	patterns []*regexp.Regexp
	// Text is the solution.
	Text string
}

var remedies = func() []Remedy {
	var all []Remedy
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			all = append(all, Remedy{patterns(row.Messages), row.ToDo})
		}
	}
	return all
}()

// For returns the solution for the problem that a status names, or else for a message, for the reason of its condition, or for a
// type of conflict. It returns an empty string if no solution is known. If several rows match a message, the first one is the
// solution. Older versions of bpfman name no problem, and newer ones can name one that this version doesn't know.
func For(named, reason, message string) string {
	if todo := problem.ToDo(problem.Reason(named)); todo != "" {
		return todo
	}
	if found := matching(message); len(found) > 0 {
		return found[0].Text
	}
	return cmp.Or(ofCondition(reason), ofConflict(reason))
}

// matching returns the rows that match a message.
func matching(message string) []Remedy {
	var found []Remedy
	for _, r := range remedies {
		if slices.ContainsFunc(r.patterns, func(p *regexp.Regexp) bool { return p.MatchString(message) }) {
			found = append(found, r)
		}
	}
	return found
}

// patterns returns a pattern for each text. An ellipsis matches any text.
func patterns(texts []string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, text := range texts {
		var parts []string
		for part := range strings.SplitSeq(text, "…") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		all = append(all, regexp.MustCompile(`(?s)`+strings.Join(parts, `.*`)))
	}
	return all
}
