// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// promised are the targets in the original developer guide of the project, by group and in its order.
var promised = []struct {
	group   string
	targets []string
}{
	{"General", []string{"help"}},
	{"Local Dependencies", []string{
		"kustomize", "controller-gen", "register-gen", "informer-gen", "lister-gen", "client-gen", "envtest", "opm",
	}},
	{"Development", []string{
		"manifests", "generate", "generate-register", "generate-deepcopy", "generate-typed-clients",
		"generate-typed-listers", "generate-typed-informers", "vendors", "fmt", "verify", "lint", "test",
		"test-integration", "bundle", "build-release-yamls",
	}},
	{"Build", []string{
		"build", "build-images", "build-operator-image", "build-agent-image", "push-images", "load-images-kind",
		"bundle-build", "bundle-push", "catalog-build", "catalog-push",
	}},
	{"CRD Deployment", []string{"install", "uninstall"}},
	{"Vanilla K8s Deployment", []string{"setup-kind", "destroy-kind", "deploy", "undeploy", "kind-reload-images", "run-on-kind"}},
	{"Openshift Deployment", []string{"deploy-openshift", "undeploy-openshift", "catalog-deploy", "catalog-undeploy"}},
}

var (
	colours    = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	targetLine = regexp.MustCompile(`^  ([a-zA-Z_0-9-]+) +\S`)
)

// help runs `make`, and returns its lines, its groups in order, and the group of each target.
func help(t *testing.T) (lines, groups []string, groupOf map[string]string) {
	t.Helper()
	output, err := makefile.Command(t, root).Output()
	if err != nil {
		t.Fatalf("make: %v", err)
	}
	groupOf = map[string]string{}
	for line := range strings.Lines(colours.ReplaceAllString(string(output), "")) {
		line = strings.TrimRight(line, "\n")
		lines = append(lines, line)
		if target := targetLine.FindStringSubmatch(line); target != nil && len(groups) > 0 {
			groupOf[target[1]] = groups[len(groups)-1]
		} else if line != "" && line != "Usage:" && !strings.HasPrefix(line, " ") {
			groups = append(groups, line)
		}
	}
	return lines, groups, groupOf
}

// TestHelp checks that the output of `make` lists every promised target in its group, and fits on a screen and a half.
func TestHelp(t *testing.T) {
	lines, groups, groupOf := help(t)
	if len(lines) > 75 || len(groupOf) > 60 {
		t.Errorf("%d lines with %d targets: document the least important ones in hack/make", len(lines), len(groupOf))
	}
	for _, line := range lines {
		if len(line) > 125 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	last := -1
	for _, p := range promised {
		at := slices.Index(groups, p.group)
		if at <= last {
			t.Errorf("group %q is not there, or not in its place among %q", p.group, groups)
		}
		last = max(last, at)
		for _, target := range p.targets {
			group, there := groupOf[target]
			switch {
			case !there:
				t.Errorf("no target %s", target)
			case group != p.group:
				t.Errorf("target %s is in group %q, not %q", target, group, p.group)
			}
		}
	}
}

// Targets run on after one has failed, and a table says what became of each.
func TestPartsRunOn(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "make")
	must.Succeed(t, os.WriteFile(fake, []byte("#!/bin/sh\necho \"$@\"\n[ $2 != bad ]\n"), 0o700))
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack/parts.sh"), "good", "bad", "last VARIABLE=1")
	command.Env = append(os.Environ(), "MAKE="+fake)
	output, err := command.CombinedOutput()
	if err == nil {
		t.Error("it succeeded")
	}
	for _, line := range []string{`--no-print-directory last VARIABLE=1\n`, `passed +\d+ s  good\n`, `FAILED +\d+ s  bad\n`, `passed +\d+ s  last VARIABLE=1\n`} {
		if !regexp.MustCompile("(?m)^" + line).Match(output) {
			t.Errorf("no line %q in:\n%s", line, output)
		}
	}
}

// TestKindMounts checks that the mounts of kind's nodes include the host's /sys file systems at, or below, each path that
// the DaemonSet mounts.
func TestKindMounts(t *testing.T) {
	content := must.Read(t, filepath.Join(root, "hack/kind/cluster.yaml"))
	var cluster struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Nodes      []struct {
			Role        string `json:"role"`
			ExtraMounts []struct {
				HostPath      string `json:"hostPath"`
				ContainerPath string `json:"containerPath"`
			} `json:"extraMounts"`
		} `json:"nodes"`
	}
	must.Succeed(t, yaml.UnmarshalStrict(content, &cluster))
	config, _, err := deploy.ParseConfig(map[string]string{deploy.KeyDaemonImage: "bpfman", deploy.KeyAgentImage: "agent", deploy.KeyCSIImage: "csi", deploy.KeyInspectorImage: "inspector"})
	if err != nil {
		t.Fatal(err)
	}
	daemonSet, err := deploy.DaemonSet(config, "bpfman")
	if err != nil {
		t.Fatal(err)
	}
	var wanted []string
	text, err := yaml.Marshal(daemonSet)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`path: (/sys/\S+)`).FindAllStringSubmatch(string(text), -1) {
		wanted = append(wanted, match[1])
	}
	if len(wanted) == 0 || len(cluster.Nodes) == 0 {
		t.Fatalf("the DaemonSet mounts %q, and kind has %d nodes", wanted, len(cluster.Nodes))
	}
	for _, node := range cluster.Nodes {
		for _, path := range wanted {
			found := false
			for _, mount := range node.ExtraMounts {
				found = found || mount.HostPath == mount.ContainerPath && strings.HasPrefix(mount.HostPath+"/", path+"/")
			}
			if !found {
				t.Errorf("kind's %s node doesn't mount %s", node.Role, path)
			}
		}
	}
}
