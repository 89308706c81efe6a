// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestExplain checks that `kubectl explain` shows an example for each field that users set, unless it lists the
// possible values of the field. Labels are Kubernetes' own.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, file := range files {
		content := must.Read(t, file)
		var definition apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, yaml.UnmarshalStrict(content, &definition))
		kind := definition.Spec.Names.Kind
		var walk func(path string, schema apiextensionsv1.JSONSchemaProps)
		walk = func(path string, schema apiextensionsv1.JSONSchemaProps) {
			for name, field := range schema.Properties {
				if name == "matchLabels" || name == "matchExpressions" {
					continue
				}
				inner := field
				if field.Items != nil && field.Items.Schema != nil {
					inner = *field.Items.Schema
				}
				walk(path+"."+name, inner)
				if len(inner.Properties) > 0 {
					continue
				}
				fields++
				description := strings.Join(strings.Fields(field.Description), " ")
				if description == "" || len(inner.Enum) == 0 && !strings.Contains(description, "For example") {
					t.Errorf("%s%s.%s has no example: %s", kind, path, name, description)
				}
			}
		}
		walk(".spec", definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	}
	if fields == 0 {
		t.Error("no field in the definitions")
	}
}
