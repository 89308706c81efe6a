// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// Environment variables in addition to KUBECONFIG: see `make test-tutorials`.
const (
	// commandsVariable names a directory with commands that readers have: kubectl and its plugin.
	commandsVariable = "TUTORIALS_COMMANDS"
	// registryVariable names a registry that the reader pushes to and the nodes pull from. registryCAVariable
	// names the file with its certificate authority.
	registryVariable   = "TUTORIALS_REGISTRY"
	registryCAVariable = "TUTORIALS_REGISTRY_CA"
)

const (
	root = "../.."
	// leftoversTimeout bounds the wait for what ends after kubectl has deleted it: reports, and pods in
	// namespaces.
	leftoversTimeout = 90 * time.Second
)

// pages returns the tutorials, by their paths. Every tutorial is tested.
func pages(t *testing.T) map[string]Page {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs/tutorials/*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("tutorials %v, error %v", paths, err)
	}
	pages := map[string]Page{}
	for _, path := range paths {
		content := must.Read(t, path)
		page, err := Parse(content)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		pages[filepath.Base(path)] = page
	}
	return pages
}

// TestPages parses each tutorial, without a cluster.
func TestPages(t *testing.T) { pages(t) }

// TestTutorials runs each tutorial on the cluster in KUBECONFIG, and checks that nothing of it is left.
func TestTutorials(t *testing.T) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		prerequisite.Missing(t, "KUBECONFIG names no cluster where bpfman is deployed; see `make test-tutorials`", prerequisite.Cluster)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := NewObjects(config)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", os.Getenv(commandsVariable)+":"+os.Getenv("PATH"))
	environment := append(os.Environ(), "REGISTRY="+os.Getenv(registryVariable))
	if authority := os.Getenv(registryCAVariable); authority != "" {
		environment = append(environment, "SSL_CERT_FILE="+trusting(t, authority))
	}
	for name, page := range pages(t) {
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			for _, requirement := range page.Requires {
				if reason := lacks(t, clients, requirement); reason != "" {
					prerequisite.Missing(t, reason, prerequisite.Tutorials)
				}
			}
			before, err := objects.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := Run(t.Context(), page, t.TempDir(), t.TempDir(), environment, t.Logf); err != nil {
				t.Error(err)
			}
			t.Logf("took %s", time.Since(began).Round(time.Second))
			nothingIsLeft(t, objects, before)
		})
	}
}

// lacks returns why a requirement of a page isn't met, or "" if it is.
func lacks(t *testing.T, clients kubernetes.Interface, requirement string) string {
	t.Helper()
	linux, isLinux := strings.CutPrefix(requirement, "linux-")
	switch {
	case requirement == "registry" && os.Getenv(registryVariable) == "":
		return registryVariable + " names no registry to push to"
	case requirement == "registry":
		return ""
	case requirement == "nri":
		return someNode(t, clients, withoutNRI)
	case isLinux:
		return someNode(t, clients, func(info corev1.NodeSystemInfo) string { return older("Linux", info.KernelVersion, linux) })
	}
	if _, err := exec.LookPath(requirement); err != nil {
		return err.Error()
	}
	return ""
}

// someNode returns what a node lacks, or "".
func someNode(t *testing.T, clients kubernetes.Interface, lacks func(corev1.NodeSystemInfo) string) string {
	t.Helper()
	nodes, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	for _, node := range nodes.Items {
		if reason := lacks(node.Status.NodeInfo); reason != "" {
			return fmt.Sprintf("node %s has %s", node.Name, reason)
		}
	}
	return ""
}

// withoutNRI compares the container runtime with the first versions that enable NRI.
func withoutNRI(info corev1.NodeSystemInfo) string {
	runtime, version, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	return older(runtime, version, map[string]string{"containerd": "2.0", "cri-o": "1.30"}[runtime])
}

// older returns what a node has if it isn't at least the wanted version.
func older(what, has, wanted string) string {
	if parsed, err := version.ParseGeneric(has); wanted == "" || err != nil || parsed.LessThan(version.MustParseGeneric(wanted)) {
		return fmt.Sprintf("%s %s, not %s or later", what, has, wanted)
	}
	return ""
}

// nothingIsLeft waits until only the previous objects exist.
func nothingIsLeft(t *testing.T, objects *Objects, before sets.Set[string]) {
	t.Helper()
	err := eventually.Succeeds(t.Context(), leftoversTimeout, time.Second, func(ctx context.Context) error {
		now, err := objects.List(ctx) // a busy API server can fail to respond
		if left := now.Difference(before); err == nil && left.Len() > 0 {
			return fmt.Errorf("objects are left: %q", sets.List(left))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// trusting returns a file with the authorities that this machine trusts, and one more.
func trusting(t *testing.T, authority string) string {
	t.Helper()
	const system = "/etc/ssl/certs/ca-certificates.crt"
	var bundle []byte
	for _, file := range []string{system, authority} {
		certificates := must.Read(t, file)
		bundle = append(bundle, certificates...)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(path, bundle, 0o600))
	return path
}
