// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package workflows tests GitHub's workflows and the images' Dockerfiles, as far as that is possible without
// running them: what they call exists, third-party actions and images are pinned, and permissions are minimal.
package workflows

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/tests/makefile"
)

const root = "../../.."

// workflow contains the tested parts of a workflow.
type workflow struct {
	Name        string            `json:"name"`
	On          map[string]any    `json:"on"`
	Permissions map[string]string `json:"permissions"`
	Concurrency map[string]any    `json:"concurrency"`
	Jobs        map[string]job    `json:"jobs"`
}

type job struct {
	Needs          json.RawMessage   `json:"needs"`
	If             string            `json:"if"`
	Uses           string            `json:"uses"`
	RunsOn         string            `json:"runs-on"`
	TimeoutMinutes int               `json:"timeout-minutes"`
	Permissions    map[string]string `json:"permissions"`
	Outputs        map[string]string `json:"outputs"`
	Concurrency    map[string]any    `json:"concurrency"`
	Env            map[string]string `json:"env"`
	Container      map[string]string `json:"container"`
	With           map[string]any    `json:"with"`
	Secrets        map[string]string `json:"secrets"`
	Strategy       strategy          `json:"strategy"`
	Defaults       map[string]any    `json:"defaults"`
	Steps          []step            `json:"steps"`
}

type strategy struct {
	FailFast bool `json:"fail-fast"`
	Matrix   struct {
		Run     []string         `json:"run"`
		Include []map[string]any `json:"include"`
	} `json:"matrix"`
}

type step struct {
	ID   string            `json:"id"`
	Name string            `json:"name"`
	If   string            `json:"if"`
	Uses string            `json:"uses"`
	Run  string            `json:"run"`
	With map[string]any    `json:"with"`
	Env  map[string]string `json:"env"`
}

func readWorkflows(t *testing.T) map[string]workflow {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	workflows := map[string]workflow{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// In YAML 1.1, the key on is a boolean.
		content = regexp.MustCompile(`(?m)^on:`).ReplaceAll(content, []byte(`"on":`))
		var w workflow
		if err := yaml.UnmarshalStrict(content, &w); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		workflows[filepath.Base(path)] = w
	}
	if names := slices.Sorted(maps.Keys(workflows)); !slices.Equal(names, []string{"ci.yaml", "debian.yaml", "docs.yaml", "nightly.yaml", "release.yaml", "security.yaml"}) {
		t.Fatalf("the workflows are %q", names)
	}
	return workflows
}

// steps yields the steps of all jobs, with the names of their jobs.
func steps(t *testing.T) iter.Seq2[string, step] {
	t.Helper()
	workflows := readWorkflows(t)
	return func(yield func(string, step) bool) {
		for file, w := range workflows {
			for name, j := range w.Jobs {
				for _, s := range j.Steps {
					if !yield(file+"/"+name, s) {
						return
					}
				}
			}
		}
	}
}

func TestSteps_CallMakeTargetsThatAreThere(t *testing.T) {
	targets := makefile.Targets(t, root)
	called := 0
	check := func(where, script string) {
		for _, target := range makeTargets(script) {
			called++
			if !targets[target] {
				t.Errorf("%s: make %s isn't there", where, target)
			}
		}
	}
	for where, s := range steps(t) {
		check(where, s.Run)
	}
	// Other jobs get what they run from a matrix.
	for file, w := range readWorkflows(t) {
		for name, j := range w.Jobs {
			for _, script := range j.Strategy.Matrix.Run {
				check(file+"/"+name, script)
			}
		}
	}
	if called < 20 {
		t.Errorf("%d targets are called, which can't be all", called)
	}
}

// makeTargets returns the targets of the calls of make in a script, without variables.
func makeTargets(script string) []string {
	var targets []string
	for line := range strings.Lines(script) {
		arguments, isMake := strings.CutPrefix(strings.TrimSpace(line), "make ")
		if !isMake {
			continue
		}
		for argument := range strings.FieldsSeq(arguments) {
			if !strings.ContainsAny(argument, "=$") {
				targets = append(targets, argument)
			}
		}
	}
	return targets
}

func TestMakeTargets(t *testing.T) {
	got := makeTargets("make a b ARCH=c\n  make d ${VERSION:+VERSION=\"$VERSION\"}\ncmake e\n")
	if !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("the targets are %q", got)
	}
}

func TestSteps_UseActionsByCommit(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+(/[\w-]+)*@[0-9a-f]{40}$`)
	for where, s := range steps(t) {
		if s.Uses != "" && !pinned.MatchString(s.Uses) {
			t.Errorf("%s: %s isn't a commit", where, s.Uses)
		}
		if (s.Uses == "") == (s.Run == "") {
			t.Errorf("%s: %q has to use something or run something", where, s.Name)
		}
		if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
			t.Errorf("%s: checkout leaves its token behind", where)
		}
	}
}

// External input must not become a part of a script.
func TestSteps_TakeExpressionsFromTheirEnvironment(t *testing.T) {
	for where, s := range steps(t) {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s has an expression: %s", where, s.Run)
		}
	}
}

// A newer run of a concurrency group cancels a pending one, so each group with a release has only runs of its tag.
func TestConcurrency_CancelsNoRelease(t *testing.T) {
	workflows := readWorkflows(t)
	for _, file := range []string{"docs.yaml", "release.yaml"} { // those that run for tags
		w := workflows[file]
		groups := []any{w.Concurrency["group"]}
		for _, j := range w.Jobs {
			groups = append(groups, j.Concurrency["group"])
		}
		for _, group := range groups {
			if group != nil && !strings.HasSuffix(fmt.Sprint(group), "${{ github.ref }}") {
				t.Errorf("%s: group %v", file, group)
			}
		}
	}
}

// Each language with code of ours is analyzed.
func TestCodeQL_AnalyzesEachLanguage(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, ".github/workflows/security.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"go", "actions", "python", "javascript-typescript"} {
		if !strings.Contains(string(content), "{language: "+language+", ") {
			t.Errorf("%s isn't analyzed", language)
		}
	}
}

func TestJobs_EndAndMayDoNoMoreThanTheyNeed(t *testing.T) {
	may := map[string]map[string]string{
		"docs.yaml/publish":       {"contents": "write"},
		"release.yaml/publish":    {"contents": "write", "id-token": "write", "packages": "write"},
		"security.yaml/codeql":    {"contents": "read", "security-events": "write"},
		"security.yaml/scorecard": {"contents": "read", "id-token": "write", "security-events": "write"},
	}
	workflows := readWorkflows(t)
	for file, w := range workflows {
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s may %v", file, w.Permissions)
		}
		for name, j := range w.Jobs {
			if !maps.Equal(j.Permissions, may[file+"/"+name]) {
				t.Errorf("%s/%s may %v, not %v", file, name, j.Permissions, may[file+"/"+name])
			}
			if j.Uses != "" {
				if _, called := workflows[strings.TrimPrefix(j.Uses, "./.github/workflows/")].On["workflow_call"]; !called {
					t.Errorf("%s/%s calls %s, which can't be", file, name, j.Uses)
				}
				continue
			}
			if j.TimeoutMinutes == 0 || !strings.HasPrefix(j.RunsOn, "ubuntu-") || j.RunsOn == "ubuntu-latest" {
				t.Errorf("%s/%s runs for %d minutes on %q", file, name, j.TimeoutMinutes, j.RunsOn)
			}
		}
	}
}

func TestJobs_WaitForJobsThatAreThere(t *testing.T) {
	for file, w := range readWorkflows(t) {
		for name, j := range w.Jobs {
			var needs []string
			if len(j.Needs) > 0 {
				if err := json.Unmarshal(j.Needs, &needs); err != nil {
					t.Errorf("%s/%s: %v", file, name, err)
				}
			}
			for _, need := range needs {
				if _, there := w.Jobs[need]; !there {
					t.Errorf("%s/%s needs %s", file, name, need)
				}
			}
		}
	}
}

// TestNightly_RunsTheSlowTests checks that the targets that make test-slow runs also run each night.
func TestNightly_RunsTheSlowTests(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "hack/make/test.mk"))
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(content), "\ntest-slow:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	slow := regexp.MustCompile(`"?(test-[^ "]+(?: [A-Z_]+=[^ "]*)?)`).FindAllStringSubmatch(recipe[strings.Index(recipe, "parts.sh"):], -1)
	if len(slow) < 10 {
		t.Fatalf("make test-slow runs %q", slow)
	}
	nightly := readWorkflows(t)["nightly.yaml"].Jobs["debian"].Strategy.Matrix.Run
	for _, each := range slow {
		if !slices.Contains(nightly, "make "+each[1]) {
			t.Errorf("make %s doesn't run each night", each[1])
		}
	}
}

// TestDependabot_KnowsEachModule checks that all modules, and the other places with versions, are updated.
func TestDependabot_KnowsEachModule(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, ".github/dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	updated := map[string]bool{}
	for _, each := range config.Updates {
		for _, directory := range append(each.Directories, each.Directory) {
			updated[each.Ecosystem+" "+directory] = true
		}
	}
	for file, ecosystem := range map[string]string{"go.mod": "gomod", "package.json": "npm", "requirements.txt": "pip", "zizmor.txt": "pip", "Dockerfile": "docker"} {
		output, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", file, "*/"+file).Output()
		if err != nil {
			t.Skipf("this isn't a clone: %v", err)
		}
		for path := range strings.FieldsSeq(string(output)) {
			// Kubernetes' own go.mod selects the versions of its dependencies, and the oldest supported version stays what it is.
			if directory := filepath.Join("/", filepath.Dir(path)); !strings.HasPrefix(directory, "/hack/kubernetes") && !updated[ecosystem+" "+directory] {
				t.Errorf("%s isn't updated", path)
			}
		}
	}
}
