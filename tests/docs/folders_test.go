// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

var (
	folderName = regexp.MustCompile("`([a-z0-9]+)/`")
	makeTarget = regexp.MustCompile("`make ([a-z-]+)`")
)

// TestEveryFolderOfTestsIsRun compares tests/README.md with the folders, and with what make runs.
func TestEveryFolderOfTestsIsRun(t *testing.T) {
	text := must.Read(t, filepath.Join(root, "tests/README.md"))
	files, err := filepath.Glob(filepath.Join(root, "hack/make/*.mk"))
	if err != nil {
		t.Fatal(err)
	}
	var recipes strings.Builder
	for _, file := range append(files, filepath.Join(root, "Makefile")) {
		content := must.Read(t, file)
		recipes.Write(content)
	}
	targets := makefile.Targets(t, root)
	listed := map[string]bool{}
	tables, _, _ := strings.Cut(string(text), "The following tables list faults")
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range folderName.FindAllStringSubmatch(cells[1], -1) {
			folder := name[1]
			listed[folder] = true
			called := regexp.MustCompile(`(\./|tests/)` + folder + `\b`).MatchString(recipes.String())
			if !called && hasTests(t, folder) {
				t.Errorf("no target of make runs tests/%s", folder)
			}
		}
		for _, target := range makeTarget.FindAllStringSubmatch(line, -1) {
			if !targets[target[1]] {
				t.Errorf("there is no target %s", target[1])
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "tests"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, entry := range entries {
		if entry.IsDir() {
			there[entry.Name()] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(there)); !slices.Equal(got, want) {
		t.Errorf("the page lists %q, and there are %q", got, want)
	}
}

// hasTests reports whether a folder has tests.
func hasTests(t *testing.T, folder string) bool {
	t.Helper()
	tests, err := filepath.Glob(filepath.Join(root, "tests", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return len(tests) > 0
}
