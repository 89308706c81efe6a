// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// unfit matches what no message has: structures of Rust, escaped newlines, and digests in front of a cause.
var unfit = regexp.MustCompile(`\w \{ \w+:|\w+Error\(|\(os error|\\n|sha(256|512):`)

// TestFormOfMessages holds each message of docs/status.md against the form of an answer: words, and one remedy. TestFormOfAnswers
// of cli/why has what surrounds a message, and that of agent/daemon what the daemons answer.
func TestFormOfMessages(t *testing.T) {
	t.Parallel()
	_, table, found := strings.Cut(string(must.Read(t, "../../docs/status.md")), "<!-- problems: messages -->")
	table, _, ended := strings.Cut(table, "<!-- end -->")
	if !found || !ended {
		t.Fatal("docs/status.md has no table of messages")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| problem") {
			continue
		}
		rows++
		const columns = 3
		if len(cells) != columns {
			t.Errorf("%q has %d columns", line, len(cells))
			continue
		}
		reason, remedy := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[2])
		for message := range strings.SplitSeq(cells[1], "`, `") {
			if wrong := unfit.FindString(message); wrong != "" {
				t.Errorf("%s: %q has %q", reason, message, wrong)
			}
		}
		if remedy == "" || unfit.MatchString(remedy) {
			t.Errorf("%s: %q isn't a remedy", reason, remedy)
		}
	}
	const atLeast = 100
	if rows < atLeast {
		t.Errorf("only %d rows were read", rows)
	}
}
