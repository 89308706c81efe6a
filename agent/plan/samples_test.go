// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// TestSamplesStay checks the load IDs and the digests of the links of all samples. If they
// change, an upgrade of the agent reloads or reattaches the programs of users.
func TestSamplesStay(t *testing.T) {
	const golden = "testdata/samples.txt"
	files, err := filepath.Glob("../../config/samples/bpfman.io_v1alpha1_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	seen := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq("\n"+string(content), "\n---") {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			i := slices.IndexFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == meta.Kind })
			if i < 0 {
				continue
			}
			o := v1alpha1.UserKinds[i].New()
			if err := yaml.Unmarshal([]byte(document), o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			seen[meta.Kind] = true
			owner := program.OwnerOf(meta.Kind, o)
			fmt.Fprintf(&got, "%s %s\n", meta.Kind, o.GetName())
			for _, load := range Want(owner, sampleNode(), nil).Loads {
				fmt.Fprintf(&got, "  load %s\n", load.ID)
				for _, p := range load.Programs {
					fmt.Fprintln(&got, strings.TrimRight("    program "+p.Type+" "+p.ID, " "))
					for _, point := range p.Points {
						fmt.Fprintf(&got, "      %s %s\n", point.Digest, point.Name)
						if point.Lack != nil {
							t.Errorf("%s: %v", point.Name, point.Lack)
						}
					}
				}
			}
		}
	}
	if len(seen) != len(v1alpha1.UserKinds) {
		t.Errorf("samples of %d kinds, and there are %d", len(seen), len(v1alpha1.UserKinds))
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// sampleNode returns a node with two interfaces, and with containers that the samples select.
func sampleNode() program.Node {
	address := netip.MustParseAddr("192.0.2.1")
	n := program.Node{
		Name: "node", Addresses: []netip.Addr{address}, UprobeNamespaces: []string{"*"},
		Interfaces: map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2, Addresses: []netip.Addr{address}}},
	}
	for _, pod := range []labels.Set{{"app": "nginx"}, {"name": "bpfman-daemon"}} {
		for _, namespace := range []string{"bpfman", "default", "acme"} {
			for _, name := range []string{"nginx", "bpfman", "bpfman-agent"} {
				id := namespace + "-" + pod.String() + "-" + name
				n.Containers = append(n.Containers, program.Container{
					Namespace: namespace, Pod: "pod", PodUID: namespace + pod.String(), PodLabels: pod, Name: name, ID: id, PID: 4711,
					Sandbox: "s" + id, NetNS: "/run/netns/x", Interfaces: []string{"eth0"},
				})
			}
		}
	}
	return n
}
