// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package manifests

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build returns the objects of an overlay as YAML, by their identity.
func build(t *testing.T, overlay string) map[string]string {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("../../config", overlay))
	if err != nil {
		t.Fatalf("%s: %v", overlay, err)
	}
	built := map[string]string{}
	for _, resource := range resources.Resources() {
		built[resource.CurId().String()] = resource.MustYaml()
	}
	return built
}

// TestReleasePartsAreTheWhole compares the install files of a release, one for each component, with
// config/default.
func TestReleasePartsAreTheWhole(t *testing.T) {
	whole := build(t, "default")
	for _, part := range []string{"crd", "release/operator", "release/agent", "release/csi", "release/inspector"} {
		for id, object := range build(t, part) {
			switch wanted, ok := whole[id]; {
			case !ok:
				t.Errorf("%s: %s isn't in config/default, or in another part too", part, id)
			case wanted != object:
				t.Errorf("%s: %s differs from config/default", part, id)
			}
			delete(whole, id)
		}
	}
	for id := range whole {
		t.Errorf("%s is in no part", id)
	}
}

// TestOverlaysAddTo checks that overlays contain everything in config/default.
func TestOverlaysAddTo(t *testing.T) {
	for _, overlay := range []string{"one-node", "hardened", "monitoring", "openshift"} {
		built := build(t, overlay)
		for id := range build(t, "default") {
			if _, ok := built[id]; !ok {
				t.Errorf("%s: no %s", overlay, id)
			}
		}
	}
}

// TestEveryObjectIsLabelled checks that each object of each overlay has the label that selects everything of
// bpfman.
func TestEveryObjectIsLabelled(t *testing.T) {
	for _, overlay := range []string{"default", "hardened", "hardened/policies", "monitoring", "openshift", "manifests"} {
		for id, object := range build(t, overlay) {
			var meta metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(object), &meta); err != nil {
				t.Fatalf("%s: %s: %v", overlay, id, err)
			}
			// OLM's tools read these, and don't create them in a cluster.
			if meta.Kind == "ClusterServiceVersion" || meta.APIVersion == "scorecard.operatorframework.io/v1alpha3" {
				continue
			}
			if got := meta.Labels["app.kubernetes.io/part-of"]; got != "bpfman" {
				t.Errorf("%s: %s has app.kubernetes.io/part-of=%q, not bpfman", overlay, id, got)
			}
		}
	}
}
