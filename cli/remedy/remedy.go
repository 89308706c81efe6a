// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package remedy knows what to do about what bpfman reports. It is the tables of docs/programs.md.
package remedy

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

// tables are written by `make generate`.
//
//go:embed remedies.md
var tables string

// Remedy is a row of the tables: what to do about messages, or about a condition.
type Remedy struct {
	// patterns match a message, each alone; of a condition there are none.
	patterns []*regexp.Regexp
	// reason is the condition's, empty for messages.
	reason string
	// Text says what to do.
	Text string
}

var remedies = parse(tables)

// For returns what to do about a message, or else about the reason of its condition; nothing where nothing is known.
func For(reason, message string) []string {
	var found []string
	for _, r := range remedies {
		if slices.ContainsFunc(r.patterns, func(p *regexp.Regexp) bool { return p.MatchString(message) }) {
			found = append(found, r.Text)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, r := range remedies {
		if r.reason == reason && r.Text != "" {
			return []string{r.Text}
		}
	}
	return nil
}

var (
	quoted = regexp.MustCompile("`[^`]+`")
	links  = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	word   = regexp.MustCompile(`^[A-Za-z]+$`)
)

const (
	messages   = "message has"
	conditions = "condition of a BpfProgram"
)

// parse reads the tables, of which each begins with its header. Others than the two that say what to do about a
// program on a node are of no use here.
func parse(text string) []Remedy {
	var all []Remedy
	table := ""
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		last := links.ReplaceAllString(cells[len(cells)-1], "$1")
		switch {
		case cells[0] == messages, cells[0] == conditions, cells[0] == "type":
			table = cells[0]
		case strings.HasPrefix(cells[0], "---"):
		case table == messages:
			all = append(all, Remedy{patterns: patterns(cells[0]), Text: last})
		case table == conditions && word.MatchString(cells[1]) && !strings.Contains(last, "see below"):
			all = append(all, Remedy{reason: cells[1], Text: last})
		}
	}
	return all
}

// patterns are a cell's quotations; an ellipsis in one is anything.
func patterns(cell string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, q := range quoted.FindAllString(cell, -1) {
		var parts []string
		for part := range strings.SplitSeq(strings.Trim(q, "`"), "…") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		all = append(all, regexp.MustCompile(`(?s)`+strings.Join(parts, `.*`)))
	}
	return all
}
