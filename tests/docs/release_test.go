// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// currentVersion returns the version in the Makefile.
func currentVersion(t *testing.T) string {
	t.Helper()
	content := must.Read(t, filepath.Join(root, "Makefile"))
	found := regexp.MustCompile(`(?m)^override VERSION := .*,(\d+\.\d+\.\d+)\)$`).FindSubmatch(content)
	if found == nil {
		t.Fatal("the Makefile sets no VERSION")
	}
	return string(found[1])
}

// others matches lines with versions that can be equal to the project's: those of the daemon, of upstream, and of past
// measurements.
var others = regexp.MustCompile(`(?i)daemon|upstream|bpfman(-agent)?:v\d|bpfman-\d|bpfman v\d|benchmarks\.md|releases/v\d|^# Measurements for|^\s*//`)

// TestBump checks that `make bump` finds each file with the version: it bumps a copy of all files that contain it.
func TestBump(t *testing.T) {
	version := currentVersion(t)
	copied := t.TempDir()
	list := exec.CommandContext(t.Context(), "git", "grep", "-lF", version, "--", ".", ":!*go.mod", ":!*go.sum", ":!*go.work.sum", ":!docs/recordings", ":!tests/upstream", ":!tests/v05", ":!*.pb.go", ":!*requirements*")
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		t.Skipf("this isn't a clone: %v", err)
	}
	makefiles, err := filepath.Glob(filepath.Join(root, "hack/make/*.mk"))
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(output))
	for _, path := range makefiles {
		files = append(files, "hack/make/"+filepath.Base(path))
	}
	for _, file := range files {
		content := must.Read(t, filepath.Join(root, file))
		must.Succeed(t, os.MkdirAll(filepath.Join(copied, filepath.Dir(file)), 0o750))
		must.Succeed(t, os.WriteFile(filepath.Join(copied, file), content, 0o600))
	}
	bump := makefile.Command(t, copied, "bump", "NEW=98.7.6")
	bump.Env = append(bump.Env, "VERSION=")
	if output, err := bump.CombinedOutput(); err != nil {
		t.Fatalf("make bump: %v\n%s", err, output)
	}
	bumped := 0
	for _, file := range files {
		content := must.Read(t, filepath.Join(copied, file))
		bumped += strings.Count(string(content), "98.7.6")
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, version) && !others.MatchString(line) {
				t.Errorf("make bump leaves %s: %s", file, line)
			}
		}
	}
	if bumped < 10 {
		t.Errorf("%d versions are bumped, which can't be all", bumped)
	}
}

// TestReleaseSettings checks how the version and the registry of a release are set.
func TestReleaseSettings(t *testing.T) {
	version := currentVersion(t)
	for name, test := range map[string]struct {
		arguments, environment []string
		expected               string
	}{
		"the default": {
			nil,
			[]string{"GITHUB_REPOSITORY=Some-One/Fork"},
			"--version " + version + ` --registry "ghcr.io/some-one" --source https://github.com/Some-One/Fork`,
		},
		"an empty version":    {nil, []string{"VERSION="}, "--version " + version + " "},
		"a tag":               {[]string{"VERSION=v1.8.7"}, nil, "--version 1.8.7 "},
		"a tag in a variable": {nil, []string{"VERSION=v1.8.7-rc.1"}, "--version 1.8.7-rc.1 "},
		"another registry": {
			[]string{"REGISTRY=registry.example.com:5000/a/b"},
			[]string{"GITHUB_REPOSITORY=Some-One/Fork"},
			`--registry "registry.example.com:5000/a/b" `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			environment := append([]string{"VERSION=", "REGISTRY="}, test.environment...)
			output := makefile.DryRun(t, root, environment, append([]string{"release-publish"}, test.arguments...)...)
			if !strings.Contains(output, test.expected) {
				t.Errorf("make doesn't run %q:\n%s", test.expected, output)
			}
		})
	}
}

// TestReleaseNamesImagesByDigest checks that everything that is released has the images of release-images, and that
// a trial has the images of the version.
func TestReleaseNamesImagesByDigest(t *testing.T) {
	for _, target := range []string{"build-release-yamls", "package-chart", "release-bundle"} {
		for argument, expected := range map[string]string{"BY_DIGEST=yes": "sed -f ", "VERSION=1.9.9": "bpfman-agent:v1.9.9|"} {
			output := makefile.DryRun(t, root, nil, target, argument)
			if !strings.Contains(output, expected) {
				t.Errorf("make %s %s doesn't run %q:\n%s", target, argument, expected, output)
			}
		}
	}
}

// TestBundleReplaces checks which version a bundle upgrades: the last one before it that isn't a candidate. It also checks
// the channels: who subscribed to the releases doesn't get a candidate.
func TestBundleReplaces(t *testing.T) {
	repository := filepath.Join(t.TempDir(), "repository")
	git := func(arguments ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", append([]string{"-C", filepath.Dir(repository), "-c", "user.name=test", "-c", "user.email=test@example.com"}, arguments...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", arguments, err, output)
		}
	}
	git("init", "--quiet", "--bare", repository)
	// The hash of the empty tree, which every repository has.
	git("--git-dir", repository, "hash-object", "-t", "tree", "-w", os.DevNull)
	for _, tag := range []string{"v0.9.0", "v0.9.1", "v0.10.0-rc.1", "v0.10.0", "v0.10.1", "v0.9.2", "apis/v0.10.1"} {
		git("--git-dir", repository, "tag", tag, "4b825dc642cb6eb9a060e54bf8d69288fbee4904")
	}
	for version, expected := range map[string]string{
		"0.9.0": "", "0.9.1": "bpfman-operator.v0.9.0", "0.9.2": "bpfman-operator.v0.9.1", "0.10.0": "bpfman-operator.v0.9.2",
		"0.10.1": "bpfman-operator.v0.10.0", "0.11.0": "bpfman-operator.v0.10.1",
		"0.11.0-rc.2": "bpfman-operator.v0.10.1",
	} {
		channels := "--channels stable,candidate --default-channel stable"
		if strings.Contains(version, "-") {
			channels = "--channels candidate --default-channel candidate"
		}
		output := makefile.DryRun(t, root, []string{"GIT_DIR=" + repository}, "bundle", "VERSION="+version)
		for _, flags := range []string{`--replaces "` + expected + `"`, channels, `--skip-range "<` + version + `"`} {
			if !strings.Contains(output, flags) {
				t.Errorf("the bundle of %s isn't made with %s:\n%s", version, flags, output)
			}
		}
	}
}
