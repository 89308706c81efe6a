// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const kyvernoExample = "../../config/hardened/kyverno.yaml"

// kyvernoSchema returns the schema of ClusterPolicies from the definition in a release of Kyverno.
func kyvernoSchema(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	release := os.Getenv("KYVERNO_FILES")
	if release == "" {
		prerequisite.Missing(t, "KYVERNO_FILES isn't set: run `make test-manifests`", prerequisite.Kyverno)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.UnmarshalStrict(must.Read(t, filepath.Join(release, "config/crds/kyverno/kyverno.io_clusterpolicies.yaml")), &definition))
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == "v1" })
	if i < 0 {
		t.Fatal("Kyverno has no ClusterPolicy of version v1 anymore")
	}
	var props apiextensions.JSONSchemaProps
	must.Succeed(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[i].Schema.OpenAPIV3Schema, &props, nil))
	return &props
}

// TestKyvernoTakesTheExample checks what the API server checks in a cluster with Kyverno, and that it drops no
// field.
func TestKyvernoTakesTheExample(t *testing.T) {
	props := kyvernoSchema(t)
	validator, _, err := validation.NewSchemaValidator(props)
	must.Succeed(t, err)
	structural, err := schema.NewStructural(props)
	must.Succeed(t, err)

	var example map[string]any
	must.Succeed(t, yaml.UnmarshalStrict(must.Read(t, kyvernoExample), &example))
	for _, problem := range validation.ValidateCustomResource(nil, example, validator) {
		t.Error(problem)
	}
	for _, unknown := range pruning.PruneWithOptions(example, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		t.Errorf("Kyverno has no field %s", unknown)
	}
}

// TestKyvernoKnowsEachKind checks that the example for Kyverno contains all kinds that load bytecode, with the
// right path of the image.
func TestKyvernoKnowsEachKind(t *testing.T) {
	content := must.Read(t, kyvernoExample)
	var example struct {
		Spec struct {
			Rules []struct {
				Match struct {
					Any []struct{ Resources struct{ Kinds []string } }
				}
				ImageExtractors map[string][]struct{ Path string }
			}
		}
	}
	if err := yaml.Unmarshal(content, &example); err != nil || len(example.Spec.Rules) != 1 || len(example.Spec.Rules[0].Match.Any) != 1 {
		t.Fatalf("%v: %+v", err, example)
	}
	rule := example.Spec.Rules[0]
	var matched, extracted, kinds []string
	for _, kind := range rule.Match.Any[0].Resources.Kinds {
		matched = append(matched, strings.TrimPrefix(kind, "bpfman.io/v1alpha1/"))
	}
	for id, object := range build(t, "crd") {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(object), &definition); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		for _, field := range []string{"bytecode", "byteCode"} {
			if _, loads := spec.Properties[field].Properties["image"].Properties["url"]; !loads {
				continue
			}
			kind := definition.Spec.Names.Kind
			kinds = append(kinds, kind)
			if extractors := rule.ImageExtractors[kind]; len(extractors) == 1 && extractors[0].Path == "/spec/"+field+"/image/url" {
				extracted = append(extracted, kind)
			}
		}
	}
	slices.Sort(kinds)
	slices.Sort(matched)
	slices.Sort(extracted)
	if len(kinds) == 0 || !slices.Equal(matched, kinds) || !slices.Equal(extracted, kinds) {
		t.Errorf("kinds %q, matched %q, looked at %q", kinds, matched, extracted)
	}
}
