// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// namedDaemon matches what names one of the bpfman daemons.
var namedDaemon = regexp.MustCompile(`\bRust\b|\b(daemon|one|that) in Go\b|\bGo daemon\b|\bbpfman\.Go\b`)

// namesDaemons are the files that name one, apart from agent/daemon, where what differs between them is.
var namesDaemons = map[string]string{
	"apis/v1alpha1/bpfnode.go":       "documentation for users: an example of status.daemon",
	"apis/v1alpha1/lsm.go":           "documentation for users: what LsmPrograms need",
	"bytecode/object/loader.go":      "message for users: what LSM programs need",
	"cli/inventory/daemons.go":       "an example",
	"internal/bpfman/recognize.go":   "recognizes them",
	"internal/daemontest/dialect.go": "the daemons in memory",
	"internal/daemontest/fake.go":    "the daemons in memory",
	"internal/daemontest/real.go":    "starts the real ones for tests",
	"internal/problem/loading.go":    "documentation for users: remedies",
	"operator/deploy/config.go":      "the DaemonSet",
	"operator/deploy/keys.go":        "the DaemonSet",
}

// All that differs between the daemons is in agent/daemon. If other code needs to know which daemon the node runs, the difference
// belongs there.
func TestDaemonsAreNamedWhereTheyDiffer(t *testing.T) {
	for _, name := range []string{"if daemon == bpfman.Rust {", "as in bpfman.Go", "The daemon in Go asks."} {
		if !namedDaemon.MatchString(name) {
			t.Errorf("%q doesn't count as a name", name)
		}
	}
	unused := maps.Clone(namesDaemons)
	for _, module := range slices.DeleteFunc(slices.Clone(speaking), func(dir string) bool { return strings.HasPrefix(dir, "hack") }) {
		must.Succeed(t, filepath.WalkDir(filepath.Join(root, module), func(path string, entry fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || filepath.Dir(name) == "agent/daemon" {
				return err
			}
			found := namedDaemon.FindString(string(must.Read(t, path)))
			if _, listed := namesDaemons[name]; found != "" && !listed {
				t.Errorf("%s names a daemon: %q", name, found)
			}
			if found != "" {
				delete(unused, name)
			}
			return nil
		}))
	}
	for name := range unused {
		t.Errorf("%s names no daemon: remove it from the list", name)
	}
}
