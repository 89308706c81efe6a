// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Each listed fix can be taken back: its lines are where the list says.
func TestRevertsApply(t *testing.T) {
	reverts, err := readReverts("reverts.txt")
	if err != nil || len(reverts) == 0 {
		t.Fatal(reverts, err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reverts {
		if _, err := r.apply(root); err != nil {
			t.Error(err)
		}
	}
}

func TestRevert(t *testing.T) {
	root := t.TempDir()
	for name, test := range map[string]struct{ list, want string }{
		"two places":        {"F1 a fault\na.go\n-one\n+1\na.go\n-three\n+three\n+four\n", "1\ntwo\nthree\nfour\ntwice\nand\ntwice\n"},
		"removed":           {"F1 a fault\na.go\n-one\n-two\n", "three\ntwice\nand\ntwice\n"},
		"lines twice":       {"F1 a fault\na.go\n-twice\n+once\n", ""},
		"other lines":       {"F1 a fault\na.go\n-five\n+six\n", ""},
		"no file":           {"F1 a fault\n-one\n", ""},
		"nothing before":    {"F1 a fault\na.go\n+one\n", ""},
		"nothing but title": {"F1 a fault", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(root, "a.go")
			list := filepath.Join(t.TempDir(), "reverts.txt")
			for name, content := range map[string]string{path: "one\ntwo\nthree\ntwice\nand\ntwice\n", list: "# a comment\n\n" + test.list} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			reverts, err := readReverts(list)
			var changed map[string][]byte
			if err == nil {
				changed, err = reverts[0].apply(root)
			}
			if got := string(changed[path]); got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
