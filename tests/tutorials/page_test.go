// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example is a page, with ^ instead of backquotes.
const example = `# Count

<!-- requires: linux-6.6 clang -->

## What you need

^^^console
kubectl version
^^^

## Count packets

1. Save it:

    ^^^yaml title="sub/packets.yaml"
    kind: X
      indented: true
    ^^^

^^^sh
echo one
echo two
^^^

It prints:

^^^text title="Output"
one
two
^^^

^^^yaml
part: shown
^^^

## If it doesn't work

## Clean up

^^^sh
true
^^^

## What's next
`

func withBackquotes(text string) []byte { return []byte(strings.ReplaceAll(text, "^", "`")) }

func TestParse(t *testing.T) {
	got, err := Parse(withBackquotes(example))
	if err != nil {
		t.Fatal(err)
	}
	output := "one\ntwo\n"
	want := Page{Requires: []string{"linux-6.6", "clang"}, Steps: []Step{
		{Line: 15, Section: "Count packets", File: "sub/packets.yaml", Content: "kind: X\n  indented: true\n"},
		{Line: 20, Section: "Count packets", Script: "echo one\necho two\n", Output: &output},
		{Line: 40, Section: "Clean up", Script: "true\n"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestParse_Refuses removes or inserts parts of the example.
func TestParse_Refuses(t *testing.T) {
	for name, c := range map[string]struct{ old, replacement, want string }{
		"no section":             {"## If it doesn't work\n", "", `no section "If it doesn't work"`},
		"nothing is cleaned up":  {"## Clean up\n\n^^^sh", "## Clean up\n\n^^^console", `isn't in the section "Clean up"`},
		"commands after that":    {"## What's next\n", "## What's next\n\n^^^sh\ntrue\n^^^\n", `isn't in the section "Clean up"`},
		"no output":              {`text title="Output"`, "text", "no command's output is shown"},
		"output of nothing":      {"^^^sh\necho one\necho two\n^^^", "", "output without a command before it"},
		"a file outside of that": {"sub/packets.yaml", "../packets.yaml", `line 15: "../packets.yaml" is not a file`},
	} {
		t.Run(name, func(t *testing.T) {
			page := strings.Replace(example, c.old, c.replacement, 1)
			if page == example {
				t.Fatalf("the example has no %q", c.old)
			}
			if _, err := Parse(withBackquotes(page)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, not %q", err, c.want)
			}
		})
	}
}
