// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type program struct {
	Node    string      `json:"node"`
	Name    string      `json:"name"`
	ID      uint32      `json:"id"`
	Created metav1.Time `json:"created,omitzero"`
}

var programs = Table[program]{Kind: "Program", Columns: []Column[program]{
	{Name: "NODE", Cell: func(p program) any { return p.Node }},
	{Name: "ID", Cell: func(p program) any { return int64(p.ID) }},
	{Name: "AGE", Cell: func(p program) any { return p.Created }},
	{Name: "PROGRAM", Wide: true, Cell: func(p program) any { return p.Name }},
}, Name: func(p program) string { return "program/" + p.Name }}

func items() []program {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	return []program{
		{Node: "b", Name: "pass", ID: 9, Created: ago(50 * time.Hour)},
		{Node: "a", Name: "evil\x1b[2J\u009b\u202e\xff\n", ID: 100, Created: ago(90 * time.Second)},
		{Node: "", Name: "", ID: 20},
	}
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	flags := NewFlags()
	command := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return programs.Print(&out, flags, items()) }}
	flags.AddTo(command, programs.Keys()...)
	command.SetArgs(append([]string{}, args...))
	err := command.Execute()
	return out.String(), err
}

func TestTable(t *testing.T) {
	for file, args := range map[string][]string{
		"table.txt":      nil,
		"wide.txt":       {"-o", "wide"},
		"no-headers.txt": {"--no-headers", "--sort-by", "id"},
		"by-node.txt":    {"--sort-by=NODE"},
		"by-age.txt":     {"--sort-by=age"},
		"names.txt":      {"-o", "name"},
		"jsonpath.txt":   {"-o", `jsonpath={range .items[*]}{.name}{"\n"}{end}`},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := run(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, out, file)
		})
	}
}

var created = regexp.MustCompile(`(created"?: "?)[^"\n]+`)

func TestFormats(t *testing.T) {
	for file, args := range map[string][]string{"list.json": {"-o", "json", "--sort-by=id"}, "list.yaml": {"-o", "yaml"}} {
		t.Run(file, func(t *testing.T) {
			out, err := run(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			out = created.ReplaceAllString(out, `${1}TIME`)
			golden.Assert(t, out, file)
		})
	}
}

func TestRefusals(t *testing.T) {
	for want, args := range map[string][]string{
		`--sort-by: there is no column "colour": specify one of node, id, age, program`: {"--sort-by=colour"},
		`unable to match a printer suitable for the output format "xml"`:                {"-o", "xml"},
	} {
		if out, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%q: printed %q, error %v", args, out, err)
		}
	}
	nameless := programs
	nameless.Name = nil
	flags := NewFlags()
	*flags.printing.OutputFormat = "name"
	if err := nameless.Print(&bytes.Buffer{}, flags, items()); err == nil {
		t.Error("names were printed of what has none")
	}
}

func TestEmptyListIsAList(t *testing.T) {
	var out bytes.Buffer
	flags := NewFlags()
	*flags.printing.OutputFormat = "json"
	if err := programs.Print(&out, flags, nil); err != nil || !strings.Contains(out.String(), `"items": []`) {
		t.Errorf("printed %s, %v", out.String(), err)
	}
}
