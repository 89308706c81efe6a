// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command problems writes the tables of docs/status.md from internal/problem, and from the sources that name the problems. They are
// between the lines <!-- problems: NAME --> and <!-- end -->. Its working directory is the root of the repository.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/bpfman/bpfman-operator/cli/remedy"
	"github.com/bpfman/bpfman-operator/hack/rewrite"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const page = "docs/status.md"

func main() {
	said, err := inSources(".")
	if err == nil {
		err = rewrite.File(page, func(text string) (string, error) { return rewritten(text, said) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "problems:", err)
		os.Exit(1)
	}
}

// part matches what is generated, between two comments.
var part = regexp.MustCompile(`(?s)<!-- problems: (\w+) -->\n.*?<!-- end -->`)

// rewritten returns the page with each part written again.
func rewritten(text string, said messages) (string, error) {
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
		return fmt.Sprintf("<!-- problems: %s -->\n\n%s\n<!-- end -->", name, write(said))
	})
	if unknown == nil && len(written) != len(parts) {
		unknown = fmt.Errorf("it has %d parts instead of %d", len(written), len(parts))
	}
	return text, unknown
}

var parts = map[string]func(messages) string{"conditions": conditions, "conflicts": conflicts, "messages": messages.tables}

func conditions(messages) string {
	var out strings.Builder
	out.WriteString("| condition of a BpfProgram | reason | what to do |\n|---|---|---|\n")
	for _, c := range remedy.Conditions {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", c.Type, c.Type.Condition().Reason, linked(c.ToDo, c.Links))
	}
	return out.String()
}

func conflicts(messages) string {
	var out strings.Builder
	out.WriteString("| conflict | what to do |\n|---|---|\n")
	for _, c := range remedy.Conflicts {
		fmt.Fprintf(&out, "| %s | %s |\n", c.Type, linked(c.ToDo, []problem.Link{{Text: c.Type, Page: "conflicts.md#" + strings.ToLower(c.Type)}}))
	}
	return out.String()
}

func (said messages) tables() string {
	var tables []string
	for _, section := range problem.Table() {
		var out strings.Builder
		fmt.Fprintf(&out, "### %s\n\n| problem | message has | cause and remedy |\n|---|---|---|\n", section.Title)
		for _, row := range section.Rows {
			var quoted []string
			for _, message := range said[row.Reason] {
				quoted = append(quoted, quote(message))
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", row.Reason, strings.Join(quoted, ", "), linked(row.ToDo, row.Links))
		}
		tables = append(tables, out.String())
	}
	return strings.Join(tables, "\n")
}

// quote returns a message as code in a table.
func quote(message string) string {
	message = strings.ReplaceAll(message, "|", `\|`)
	if strings.Contains(message, "`") {
		return "`` " + message + " ``"
	}
	return "`" + message + "`"
}

// linked returns a text with its links in Markdown.
func linked(text string, links []problem.Link) string {
	for _, l := range links {
		text = strings.Replace(text, l.Text, "["+l.Text+"]("+l.Page+")", 1)
	}
	return text
}
