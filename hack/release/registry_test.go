// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"strings"
	"testing"
)

func TestCommon_Parse(t *testing.T) {
	for name, test := range map[string]struct{ version, registry, revision, refused string }{
		"a version":       {"1.2.3", "ghcr.io/example", "0a1b", ""},
		"a candidate":     {"1.2.3-rc.1", "registry.example.com:5000/a/b", "0a1b", ""},
		"a tag":           {"v1.2.3", "ghcr.io/example", "0a1b", "isn't a version"},
		"half a version":  {"1.2.x", "ghcr.io/example", "0a1b", "isn't a version"},
		"build metadata":  {"1.2.3+5", "ghcr.io/example", "0a1b", "isn't a version"},
		"a second major":  {"2.0.0", "ghcr.io/example", "0a1b", "/v2"},
		"no version":      {"", "ghcr.io/example", "0a1b", "isn't a version"},
		"no registry":     {"1.2.3", "", "0a1b", "isn't a registry"},
		"a URL":           {"1.2.3", "https://ghcr.io/example", "0a1b", "isn't a registry"},
		"capitals":        {"1.2.3", "ghcr.io/Example", "0a1b", "isn't a registry"},
		"someone's clone": {"1.2.3", "ghcr.io/example", "", "git clone"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newCommon("test").parse([]string{"--version", test.version, "--registry", test.registry, "--revision", test.revision})
			if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
