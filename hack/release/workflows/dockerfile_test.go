// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package workflows

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// stage is a stage of a Dockerfile.
type stage struct {
	from, name   string
	instructions []string
}

func readStages(t *testing.T) []stage {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var stages []stage
	for line := range strings.Lines(strings.ReplaceAll(string(content), "\\\n", "")) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case fields[0] == "FROM":
			fields = slices.DeleteFunc(fields, func(field string) bool { return strings.HasPrefix(field, "--") })
			if len(fields) != 4 || fields[2] != "AS" {
				t.Fatalf("a stage without a name: %s", line)
			}
			stages = append(stages, stage{from: fields[1], name: fields[3]})
		case len(stages) > 0:
			last := &stages[len(stages)-1]
			last.instructions = append(last.instructions, line)
		}
	}
	return stages
}

func TestDockerfile_TakesImagesThatAReleaseCanName(t *testing.T) {
	stages := readStages(t)
	var names []string
	for _, s := range stages {
		if s.from != "$GO_IMAGE" && s.from != "$BASE_IMAGE" && !slices.Contains(names, s.from) {
			t.Errorf("%s is made from %s", s.name, s.from)
		}
		names = append(names, s.name)
	}
}

// The images, and the users that they run as.
func TestDockerfile_ImagesRunAsRootOnlyWhereTheJobNeedsIt(t *testing.T) {
	users := map[string]string{
		"operator": "65532:65532", "agent": "0:0", "csi": "0:0", "inspector": "0:0", "node-probe": "0:0",
		"counters": "65534:65534", "map-exporter": "65534:65534", "go-target": "65534:65534", "firewall": "65534:65534",
	}
	images := 0
	for _, s := range readStages(t) {
		if s.from != "base" {
			continue
		}
		images++
		if !slices.Contains(s.instructions, "USER "+users[s.name]) {
			t.Errorf("%s doesn't run as %s", s.name, users[s.name])
		}
		if !slices.ContainsFunc(s.instructions, func(line string) bool { return strings.HasSuffix(line, "/licenses /licenses") }) {
			t.Errorf("%s doesn't have the licenses of what is in it", s.name)
		}
	}
	if images != len(users) {
		t.Errorf("%d images, not %d", images, len(users))
	}
}

// The images of a release are built without the Dockerfile.
func TestDockerfile_HasTheImagesOfARelease(t *testing.T) {
	stages := readStages(t)
	for _, command := range image.Published {
		name := strings.TrimPrefix(command.Repository, "bpfman-")
		at := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
		if at < 0 {
			t.Errorf("no stage %s", name)
			continue
		}
		user := cmp.Or(command.User, "0:0")
		for _, expected := range []string{"USER " + user, `ENTRYPOINT ["/` + command.Binary + `"]`} {
			if !slices.Contains(stages[at].instructions, expected) {
				t.Errorf("%s has no %s: %q", name, expected, stages[at].instructions)
			}
		}
		for _, file := range append([]string{command.Binary}, command.Others...) {
			if !slices.ContainsFunc(stages[at].instructions, func(line string) bool { return strings.Contains(line, "/out/"+file+" ") }) {
				t.Errorf("%s has no %s", name, file)
			}
		}
	}
}

// The toolchain has a patch version, which is the same everywhere.
func TestToolchain(t *testing.T) {
	workspace, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\d+\.\d+\.\d+)$`).FindSubmatch(workspace)
	if toolchain == nil {
		t.Fatal("go.work names no toolchain")
	}
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if expected := "ARG GO_IMAGE=docker.io/library/golang:" + string(toolchain[1]) + "\n"; !strings.Contains(string(dockerfile), expected) {
		t.Errorf("the Dockerfile has no %s", expected)
	}
}

func TestDockerfile_BuildsDependOnTheSourceOnly(t *testing.T) {
	flags := regexp.MustCompile(`^ENV .*CGO_ENABLED=0 .*GOFLAGS=".*-trimpath .*-buildvcs=false`)
	for _, s := range readStages(t) {
		if s.from == "$GO_IMAGE" && !slices.ContainsFunc(s.instructions, flags.MatchString) {
			t.Errorf("%s builds with paths or versions of the directory in it", s.name)
		}
	}
}
