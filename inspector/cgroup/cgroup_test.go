// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// hierarchy creates directories in the form of a hierarchy, and visits them without queries.
func hierarchy(t *testing.T, paths ...string) (visited *walk, err error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, path := range paths {
		if err := root.MkdirAll(path[1:], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	visited = newWalk(nil, func(uint64) bool { return true })
	return visited, visited.hierarchy(dir)
}

func (w *walk) below(path string) (count int) {
	for _, at := range w.paths {
		if strings.HasPrefix(at, path) {
			count++
		}
	}
	return count
}

// A container that manages its own cgroups can nest them, and can create any number. Others' are read nevertheless, and the
// error says that some aren't.
func TestCrowdedContainer(t *testing.T) {
	container := func(digit string) string { return "/kubepods/pod1/" + strings.Repeat(digit, 64) }
	quiet := []string{container("c") + "/init", "/system.slice/a.service"}
	for name, crowded := range map[string][]string{
		"many": func() (paths []string) {
			for n := range maxOfContainer + 9 {
				paths = append(paths, fmt.Sprintf("%s/%d", container("a"), n))
			}
			return paths
		}(),
		"deep":                  {container("a") + strings.Repeat("/d", 9*maxDepth)},
		"deep, with long names": {container("a") + strings.Repeat("/"+strings.Repeat("d", 250), maxDepth-3)},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := hierarchy(t, append(crowded, quiet...)...)
			if deep := name == "deep, with long names"; deep != (err == nil) || !deep && !errors.Is(err, ErrMany) {
				t.Errorf("error %v", err)
			}
			if count := w.below(container("a")); count > maxOfContainer || count < 25 {
				t.Errorf("%d of the crowded container are read", count)
			}
			for _, path := range quiet {
				if w.below(path) != 1 {
					t.Errorf("%s isn't read", path)
				}
			}
		})
	}
}

// A cgroup can have the form of a name of a controller's file.
func TestNamesOfFiles(t *testing.T) {
	paths := []string{"/io.x/below", "/memory.max", "/cpu.slice", "/cgroup.procs/a.scope"}
	w, err := hierarchy(t, paths...)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if w.below(path) != 1 {
			t.Errorf("%s isn't read", path)
		}
	}
}

// The containers together have a limit, within which each gets its share.
func TestLimits(t *testing.T) {
	for left, want := range map[int]int{maxOfContainers: maxOfContainer, maxOfContainer: maxOfContainer, 100: 100, 1: minOfContainer, -9: minOfContainer} {
		if limit := (&walk{leftOfContainers: left}).limit(); limit != want {
			t.Errorf("with %d left, the limit is %d, want %d", left, limit, want)
		}
	}
}
