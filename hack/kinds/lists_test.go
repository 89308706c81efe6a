// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"testing"
)

func TestRewrite(t *testing.T) {
	names := []name{{"AProgram", "aprograms"}, {"BProgram", "bprograms"}, {"CProgram", "cprograms"}}
	for title, test := range map[string]struct {
		list         list
		before, want string
	}{
		"a line for each": {
			list{item: "- {resource}/status"},
			"x:\n  - aprograms/status\n  - zprograms/status\ny:\n  - aprograms\n",
			"x:\n  - aprograms/status\n  - bprograms/status\n  - cprograms/status\ny:\n  - aprograms\n",
		},
		"on one line": {
			list{item: "{resource}", between: ","},
			"kubectl get aprograms,cprograms --all; kubectl get pods,nodes",
			"kubectl get aprograms,bprograms,cprograms --all; kubectl get pods,nodes",
		},
		"twice": {
			list{item: "{kind}", between: ";"},
			"Enum=BProgram;CProgram\nEnum=Always;Never\nEnum=AProgram;CProgram\n",
			"Enum=AProgram;BProgram;CProgram\nEnum=Always;Never\nEnum=AProgram;BProgram;CProgram\n",
		},
		"of others":  {list{item: "- {resource}"}, "- nodes\n- pods\n", ""},
		"of another": {list{item: "- {resource}"}, "- aprograms\n", ""},
	} {
		t.Run(title, func(t *testing.T) {
			test.list.names = names
			got, err := test.list.rewrite(test.before)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("%v:\n%s", err, got)
			}
		})
	}
}

func TestListsAreCurrent(t *testing.T) {
	t.Chdir("../..")
	current := func(file string, with func(string) (string, error)) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := with(string(content)); err != nil || text != string(content) {
			t.Errorf("%s isn't current, run make generate: %v", file, err)
		}
	}
	for _, l := range lists {
		current(l.file, l.rewrite)
	}
	current(rolesFile, func(string) (string, error) { return userRoles(), nil })
	current(chartFile, func(text string) (string, error) { return inChart(text, "config/crd/bases") })
}
