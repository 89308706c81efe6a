// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The kernel prints keys again if entries are deleted while it prints the map. Different keys can have the same text if
// they are structs.
func TestTextElementsThatRepeat(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"numbers": {"1: 10\n2: 20\n1: 11\n3: 30\n2: 20\n", []string{"1", "2", "3"}},
		"structs": {"{1,{2,},}: 10\n{1,{2,},}: 20\n", []string{"{1,{2,},}", "{1,{2,},}"}},
	} {
		path := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for e, err := range textElements(path) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.key.String())
		}
		if !slices.Equal(keys, c.want) {
			t.Errorf("%s: %q, want %q", name, keys, c.want)
		}
	}
}
