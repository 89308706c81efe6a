// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package workflows

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
			t.Errorf("%s doesn't have the licences of what is in it", s.name)
		}
	}
	if images != len(users) {
		t.Errorf("%d images, not %d", images, len(users))
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
