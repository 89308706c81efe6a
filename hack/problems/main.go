// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command problems writes the tables of docs/status.md from internal/problem. They are between the lines
// <!-- problems: NAME --> and <!-- end -->. Its working directory is the root of the repository.
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/hack/rewrite"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const page = "docs/status.md"

func main() {
	if err := rewrite.File(page, rewritten); err != nil {
		fmt.Fprintln(os.Stderr, "problems:", err)
		os.Exit(1)
	}
}

// part matches what is generated, between two comments.
var part = regexp.MustCompile(`(?s)<!-- problems: (\w+) -->\n.*?<!-- end -->`)

// rewritten returns the page with each part written again.
func rewritten(text string) (string, error) {
	var unknown error
	written := map[string]bool{}
	text = part.ReplaceAllStringFunc(text, func(match string) string {
		name := part.FindStringSubmatch(match)[1]
		write, known := parts[name]
		if !known {
			unknown = fmt.Errorf("there is no part %q", name)
			return match
		}
		written[name] = true
		return fmt.Sprintf("<!-- problems: %s -->\n\n%s\n<!-- end -->", name, write())
	})
	if unknown == nil && len(written) != len(parts) {
		unknown = fmt.Errorf("it has %d parts instead of %d", len(written), len(parts))
	}
	return text, unknown
}

var parts = map[string]func() string{"conditions": conditions, "conflicts": conflicts, "messages": messages}

func conditions() string {
	var out strings.Builder
	out.WriteString("| condition of a BpfProgram | reason | what to do |\n|---|---|---|\n")
	for _, c := range problem.Conditions {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", c.Type, c.Type.Condition().Reason, linked(c.ToDo, c.Links))
	}
	return out.String()
}

func conflicts() string {
	var out strings.Builder
	out.WriteString("| conflict | what to do |\n|---|---|\n")
	for _, c := range problem.Conflicts {
		fmt.Fprintf(&out, "| %s | %s |\n", c.Type, linked(c.ToDo, []problem.Link{{Text: c.Type, Page: "conflicts.md#" + strings.ToLower(c.Type)}}))
	}
	return out.String()
}

func messages() string {
	var tables []string
	for _, section := range problem.Table() {
		var out strings.Builder
		fmt.Fprintf(&out, "### %s\n\n| problem | message has | cause and remedy |\n|---|---|---|\n", section.Title)
		for _, row := range section.Rows {
			var quoted []string
			for _, message := range slices.Concat(row.Messages, row.Daemon) {
				quoted = append(quoted, "`"+message+"`")
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", row.Reason, strings.Join(quoted, ", "), linked(row.ToDo, row.Links))
		}
		tables = append(tables, out.String())
	}
	return strings.Join(tables, "\n")
}

// linked returns a text with its links in Markdown.
func linked(text string, links []problem.Link) string {
	for _, l := range links {
		text = strings.Replace(text, l.Text, "["+l.Text+"]("+l.Page+")", 1)
	}
	return text
}
