// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"os"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCatalog compares a catalog with the expected one, except for the metadata, which are copies.
func TestCatalog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := WriteCatalog(write(t, generate(t)), "example.com/bundle:v1", path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, string(content))
	bundle := got[len(got)-1].Object
	properties, found, err := unstructured.NestedSlice(bundle, "properties")
	if err != nil || !found {
		t.Fatalf("no properties, error %v", err)
	}
	last := len(properties) - 1
	if metadata, ok := properties[last].(map[string]any); !ok || metadata["type"] != "olm.csv.metadata" {
		t.Errorf("the last property is %v", properties[last])
	}
	bundle["properties"] = properties[:last]
	if diff := gocmp.Diff(parse(t, `
schema: olm.package
name: some-operator
defaultChannel: stable
description: Something
icon: {base64data: PHN2Zy8+, mediatype: image/svg+xml}
---
schema: olm.channel
package: some-operator
name: fast
entries: [{name: some-operator.v1.2.3, replaces: some-operator.v1.2.0, skipRange: ">=1.0.0 <1.2.3"}]
---
schema: olm.channel
package: some-operator
name: stable
entries: [{name: some-operator.v1.2.3, replaces: some-operator.v1.2.0, skipRange: ">=1.0.0 <1.2.3"}]
---
schema: olm.bundle
package: some-operator
name: some-operator.v1.2.3
image: example.com/bundle:v1
properties:
- {type: olm.package, value: {packageName: some-operator, version: 1.2.3}}
- {type: olm.gvk, value: {group: example.com, version: v1alpha1, kind: BpfNode}}
- {type: olm.gvk, value: {group: example.com, version: v1alpha1, kind: SomeProgram}}
relatedImages:
- {name: "", image: "example.com/bundle:v1"}
- {name: node-agent, image: "example.com/agent:v1"}
- {name: operator, image: "example.com/operator:v1"}
`), got); diff != "" {
		t.Error(diff)
	}
}
