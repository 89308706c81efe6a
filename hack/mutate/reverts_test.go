// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
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

// The search goes on after a history that breaks an invariant with the fix, too.
func TestFind(t *testing.T) {
	directory := t.TempDir()
	simulate := func(name string, seeds ...int) simulation {
		script := "#!/bin/sh\nfor a; do case $a in -seed=*) first=${a#-seed=};; -search=1ms) one=yes;; esac; done\n"
		for _, seed := range seeds {
			script += fmt.Sprintf("if [ $first -le %[1]d ] && [ -z \"$one\" -o $first = %[1]d ]; then echo \"search_test.go:1: seed %[1]d: broken\"; exit 1; fi\n", seed)
		}
		s := simulation{filepath.Join(directory, name), directory}
		if err := os.WriteFile(s.binary, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return s
	}
	broken := simulate("broken", 3, 5, 8)
	for name, test := range map[string]struct {
		fixed  simulation
		want   string
		others []string
	}{
		"the first":       {simulate("fixed"), "seed 3: broken", nil},
		"a later one":     {simulate("partly", 3, 5), "seed 8: broken", []string{"seed 3: broken", "seed 5: broken"}},
		"none of them":    {broken, "", []string{"seed 3: broken", "seed 5: broken", "seed 8: broken"}},
		"another of both": {simulate("other", 4, 5, 8), "seed 3: broken", nil},
	} {
		t.Run(name, func(t *testing.T) {
			what, others, err := find(t.Context(), broken, test.fixed, time.Minute)
			if err != nil || what != test.want || !slices.Equal(others, test.others) {
				t.Errorf("%q, %q, %v", what, others, err)
			}
		})
	}
}
