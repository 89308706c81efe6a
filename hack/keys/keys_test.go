// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/operator/deploy"
)

func TestFilesAreCurrent(t *testing.T) {
	t.Chdir("../..")
	for _, o := range outputs {
		content, err := os.ReadFile(o.file)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := o.write(string(content), deploy.Keys()); err != nil || text != string(content) {
			t.Errorf("%s isn't current, run make manifests: %v", o.file, err)
		}
	}
}

// A key that a file doesn't have yet is added to it, and what isn't a key's stays.
func TestNewKey(t *testing.T) {
	keys := []deploy.Key{
		{Name: "a.b", Section: "Agent", Value: "agent.wait", Default: "30s", Description: "how long it [waits](rollback.md)"},
		{Name: "a.c", Section: "Agent", Value: "agent.names", Form: deploy.Names, Description: "`names`"},
		{Name: "a.d", Section: "Agent", Value: "file", Default: "[t]\n  a = 1\n", Description: "a file"},
	}
	for title, test := range map[string]struct {
		write        func(string, []deploy.Key) (string, error)
		before, want string
	}{
		"values": {
			values,
			"agent:\n  # old\n  # text\n  wait: 1m\n\n# other\nother:\n  wait: 1\n",
			"agent:\n  # How long it waits (docs/rollback.md).\n  wait: 30s\n  # Names.\n  names: []\n\n# other\nother:\n  wait: 1\n" +
				"# A file.\nfile: |\n  [t]\n    a = 1\n",
		},
		"values without the section": {values, "other:\n  wait: 1\n", ""},
		"tables": {
			tables,
			"### Agent\n\nText.\n\n| Key |\n|---|\n| old |\n\n### Other\n\n| Key |\n|---|\n",
			"### Agent\n\nText.\n\n| Key | Value of the chart | Default | Description |\n|---|---|---|---|\n" +
				"| `a.b` | `agent.wait` | `30s` | how long it [waits](rollback.md) |\n| `a.c` | `agent.names` | none | `names` |\n" +
				"| `a.d` | `file` | `[t]`, `a = 1` | a file |\n\n### Other\n\n| Key |\n|---|\n",
		},
		"tables without the section":   {tables, "### Other\n\n| Key |\n|---|\n", ""},
		"a schema without the section": {schema, `{"properties": {"other": {}}}`, ""},
	} {
		t.Run(title, func(t *testing.T) {
			if got, err := test.write(test.before, keys); got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("%v:\n%s", err, got)
			}
		})
	}
}

func TestCommentsHaveShortLines(t *testing.T) {
	for line := range strings.Lines(comment(strings.Repeat("word ", 100), "  ")) {
		if len(strings.TrimSuffix(line, "\n")) > width || !strings.HasPrefix(line, "  # word") {
			t.Errorf("%q", line)
		}
	}
}
