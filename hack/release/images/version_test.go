// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"testing"
)

func TestIsLatest(t *testing.T) {
	tags := []string{"v1.6.0", "v1.6.1", "v1.7.0", "v1.8.0-rc.1", "unrelated"}
	for version, want := range map[string]bool{
		"1.7.0":      true,
		"1.7.1":      true, // the tag can be absent in a trial
		"1.8.0":      true,
		"1.10.0":     true,
		"1.6.2":      false, // a patch of an older minor version
		"1.8.0-rc.1": false,
		"1.9.0-rc.1": false,
	} {
		if got := IsLatest(version, tags); got != want {
			t.Errorf("%s is the latest of %q: %t", version, tags, got)
		}
	}
}

func TestRelease_Notes(t *testing.T) {
	const changelog = `# Changelog

## Unreleased

Soon, see [a page](docs/page.md#part).

## [1.2.3] - 2026-01-02

### Added

- This, see [security](SECURITY.md), and [elsewhere](https://example.com/docs/).

## v1.2.2 - 2026-01-01

- That
`
	for name, test := range map[string]struct {
		version    string
		unreleased bool
		want       string
	}{
		"a version": {"1.2.3", false, "### Added\n\n- This, see [security](https://github.com/example/project/blob/v1.2.3/SECURITY.md), and [elsewhere](https://example.com/docs/).\n"},
		"the last":  {"1.2.2", true, "- That\n"},
		"candidate": {"1.3.0-rc.1", false, "Soon, see [a page](https://github.com/example/project/blob/v1.3.0-rc.1/docs/page.md#part).\n"},
		"trial":     {"1.3.0", true, "Soon, see [a page](https://github.com/example/project/blob/v1.3.0/docs/page.md#part).\n"},
		"forgotten": {"1.3.0", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := example("registry.example.com")
			r.Version = test.version
			got, err := r.Notes(changelog, test.unreleased)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("the notes are %q, %v", got, err)
			}
		})
	}
}

func TestProvenance(t *testing.T) {
	workflow := map[string]string{
		"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "example/project", "GITHUB_RUN_ID": "7",
		"GITHUB_WORKFLOW_REF": "example/project/.github/workflows/release.yaml@refs/tags/v1.2.3",
	}
	for name, test := range map[string]struct {
		environment     map[string]string
		builder, caller string
	}{
		"workflow": {workflow, "https://github.com/example/project/.github/workflows/release.yaml@refs/tags/v1.2.3", "https://github.com/example/project/actions/runs/7/attempts/1"},
		"person":   {nil, "https://github.com/example/project/blob/main/docs/releasing.md", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Provenance(example("registry.example.com"), func(name string) string { return test.environment[name] })
			run, ok := p["runDetails"].(map[string]any)
			if !ok {
				t.Fatalf("the provenance is %v", p)
			}
			builder, _ := run["builder"].(map[string]any)
			metadata, _ := run["metadata"].(map[string]any)
			if builder["id"] != test.builder || metadata["invocationId"] != test.caller {
				t.Errorf("%v ran it, as %v", builder, metadata)
			}
		})
	}
}
