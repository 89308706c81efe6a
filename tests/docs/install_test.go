// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestInstallAndUninstall checks that the targets that test installations run the commands
// on the page about installing, in the same order.
func TestInstallAndUninstall(t *testing.T) {
	content := must.Read(t, filepath.Join(root, "docs/install.md"))
	version := currentVersion(t)
	release := "release-v" + version
	// The page has the published chart, and the target has a packaged one.
	chart := "oci://quay.io/bpfman/charts/bpfman-operator --version " + version
	for target, commands := range map[string][]string{
		"deploy-release":   {release + "/install.sh " + release + "/bpfman-all-install.yaml"},
		"undeploy-release": {release + "/uninstall.sh " + release + "/bpfman-all-install.yaml"},
		"deploy-helm": {
			"helm install bpfman " + chart + " --namespace bpfman --create-namespace --take-ownership --force-conflicts",
			"kubectl label --overwrite namespace bpfman pod-security.kubernetes.io/enforce=privileged",
		},
		"undeploy-helm": {release + "/uninstall.sh --helm"},
	} {
		t.Run(target, func(t *testing.T) {
			run := dryRun(t, target)
			next := 0
			for _, command := range commands {
				if !strings.Contains(string(content), command+"\n") {
					t.Errorf("docs/install.md doesn't have %q", command)
				}
				at := slices.IndexFunc(run[next:], func(line string) bool {
					return strings.Contains(line, withoutPaths(strings.ReplaceAll(command, chart, "bpfman-operator-"+version+".tgz")))
				})
				if at < 0 {
					t.Fatalf("make %s doesn't run %q, or not in its place:\n%s", target, command, strings.Join(run, "\n"))
				}
				next += at + 1
			}
		})
	}
}

// TestKubernetesVersions checks that the oldest version of Kubernetes is the same in the documentation, the chart, and
// the script, and that tests run on it, and on the others that the documentation names.
func TestKubernetesVersions(t *testing.T) {
	for file, want := range map[string]string{
		"docs/install.md":                   "- Kubernetes version 1.30 or later. The tests run on 1.30, 1.36, and 1.37\n",
		"docs/development.md":               "the API server of Kubernetes 1.30, the oldest supported version",
		"charts/bpfman-operator/Chart.yaml": `kubeVersion: ">=1.30.0-0"`,
		"hack/install/install.sh":           "Kubernetes 1.30 or later is required",
		"hack/kubernetes/oldest/go.mod":     "k8s.io/kubernetes v1.30.",
		"hack/kubernetes/previous.mod":      "k8s.io/kubernetes v1.36.",
		"hack/kubernetes/go.mod":            "k8s.io/kubernetes v1.37.",
	} {
		content := must.Read(t, filepath.Join(root, file))
		if !strings.Contains(string(content), want) {
			t.Errorf("%s doesn't have %q", file, want)
		}
	}
}

// TestUninstallChecksFirst checks that all targets that uninstall leave deleting to the script, which first checks
// whose definitions the cluster has.
func TestUninstallChecksFirst(t *testing.T) {
	for _, target := range []string{"undeploy", "undeploy-openshift", "undeploy-kustomize", "undeploy-release", "undeploy-helm", "uninstall"} {
		run := dryRun(t, target)
		if !slices.ContainsFunc(run, func(line string) bool { return strings.Contains(line, " uninstall.sh ") }) {
			t.Errorf("make %s doesn't run the script:\n%s", target, strings.Join(run, "\n"))
		}
		for _, line := range run {
			if words := strings.Fields(line); slices.Contains(words, "delete") || slices.Contains(words, "uninstall") {
				t.Errorf("make %s deletes by itself: %s", target, line)
			}
		}
	}
}

// dryRun returns the commands of a target, on a cluster that the Makefile doesn't know.
func dryRun(t *testing.T, target string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(makefile.DryRun(t, root, []string{"KUBECONFIG=/elsewhere"}, target)) {
		lines = append(lines, withoutPaths(line))
	}
	return lines
}

// withoutPaths keeps the part of each word after the last slash, because the page and the
// tests have files and commands in different places.
func withoutPaths(command string) string {
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = path.Base(word)
	}
	return strings.Join(words, " ")
}
