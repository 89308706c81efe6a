// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

//nolint:dupword // lines of Markdown end and begin with the same words
const generated = `# API Reference

### Resource Types
- [Car](#car)
- [Bike](#bike)


#### Bike



Bike has two
wheels. It is light.



| Field | Description |
| --- | --- |
| ` + "`wheels` _[Wheel](#wheel) array_" + ` | wheels |


#### Car



Car is a car.

| Field | Description |
| --- | --- |
| ` + "`engine` _[Engine](#engine)_ | engine |\n| `wheels` _[Wheel](#wheel) array_" + ` | wheels |


#### Engine



Engine drives a car.



_Appears in:_

- [Car](#car)

| Field | Description |
| --- | --- |


#### Wheel



Wheel is round.



_Appears in:_

- [Bike](#bike)
- [Car](#car)

| Field | Description |
| --- | --- |
| ` + "`tire` _[Tire](https://example.com/#tire)_" + ` | tire |
`

// Each page has the types that its kind uses, and no other, so that links stay within the page.
func TestPages(t *testing.T) {
	got := pages(generated)
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"bike.md", "car.md", "index.md"}) {
		t.Fatalf("%q", names)
	}
	for name, want := range map[string][]string{
		"bike.md": {"# Bike", "## Wheel"},
		"car.md":  {"# Car", "## Engine", "## Wheel"},
	} {
		var headings []string
		for line := range strings.Lines(got[name]) {
			if strings.HasPrefix(line, "#") {
				headings = append(headings, strings.TrimSpace(line))
			}
		}
		if !slices.Equal(headings, want) {
			t.Errorf("%s has %q, not %q", name, headings, want)
		}
		if strings.Contains(got[name], "Appears in") || strings.Contains(got[name], "\n\n\n") {
			t.Errorf("%s:\n%s", name, got[name])
		}
	}
	if want := "| [Bike](bike.md) | Bike has two wheels. |\n"; !strings.Contains(got["index.md"], want) {
		t.Errorf("%s", got["index.md"])
	}
}
