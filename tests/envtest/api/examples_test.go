// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// examples finds the examples in a description, which `kubectl explain` shows.
var (
	examples = regexp.MustCompile("(?s)For\\s+example: (`[^`]+`(?:(?:,| or|, or)\\s+`[^`]+`)*)")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// example is a value for a field. In the path, "[]" is the only item of a list.
type example struct {
	path []string
	text string
}

// examplesIn returns the examples in the descriptions of a schema and of the schemas in it.
func examplesIn(of apiextensionsv1.JSONSchemaProps, path ...string) []example {
	var found []example
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		field := of.Properties[name]
		within := append(slices.Clone(path), name)
		if match := examples.FindStringSubmatch(field.Description); match != nil {
			for _, text := range quoted.FindAllStringSubmatch(match[1], -1) {
				found = append(found, example{within, strings.Join(strings.Fields(text[1]), " ")})
			}
		}
		if field.Items != nil && field.Items.Schema != nil {
			field, within = *field.Items.Schema, append(within, "[]")
		}
		found = append(found, examplesIn(field, within...)...)
	}
	return found
}

// beside contains what the API server requires beside any field of some parents, or of the items of a list.
var beside = map[string]string{
	"imagepullsecret":           `{"name":"registry","namespace":"default"}`,
	"authorities":               `{"name":"acme"}`,
	"key":                       `{"secret":{"name":"acme-keys"}}`,
	"trustedRoot":               `{"name":"sigstore-root"}`,
	"keyless":                   `{"identities":[{"issuer":"https://accounts.example.com","subject":"release@example.com"}],"trustedRoot":{"name":"sigstore-root"}}`,
	"rules":                     `{"name":"acme","images":["quay.io/acme/*"]}`,
	"attestations":              `{"predicateType":"https://slsa.dev/provenance/v1","signedBy":["acme"]}`,
	"steps":                     `{"nodes":1}`,
	"identities":                `{"issuer":"https://accounts.example.com"}`,
	"containers":                `{"pods":{}}`,
	"interfacesdiscoveryconfig": `{"interfaceautodiscovery":true}`,
	"imagePullSecret":           `{"name":"registry","namespace":"default"}`,
	"networkNamespaces":         `{"pods":{}}`,
	"interfacesDiscoveryConfig": `{"interfaceAutoDiscovery":true}`,
}

// needed contains what the API server requires beside some fields.
var needed = map[string]string{"failurePolicy": `{"attachment":"BeforeStart"}`}

// siblings returns what is beside.
func siblings(t *testing.T, parent string) map[string]any {
	t.Helper()
	if text, ok := beside[parent]; ok {
		return decode(t, text)
	}
	return map[string]any{}
}

// set sets a field, and creates what is missing on the way to it. At the depth of alone, it removes the siblings.
func set(t *testing.T, content map[string]any, path []string, value any, alone int) {
	t.Helper()
	name, rest := path[0], path[1:]
	child := content[name]
	if alone == 0 {
		clear(content)
	}
	switch {
	case len(rest) == 0:
		content[name] = value
		if text, ok := needed[name]; ok {
			maps.Copy(content, decode(t, text))
		}
	case rest[0] == "[]":
		items, _ := child.([]any)
		item := siblings(t, name)
		if name == "links" && len(items) > 0 { // what is beside depends on the type of the program
			item, _ = items[0].(map[string]any)
		}
		for _, candidate := range items {
			if candidate, ok := candidate.(map[string]any); ok && candidate[rest[1]] != nil && (len(rest) > 2 || reflect.DeepEqual(candidate[rest[1]], value)) {
				item = candidate
			}
		}
		set(t, item, rest[1:], value, alone-1)
		content[name] = []any{item}
	default:
		inner, _ := child.(map[string]any)
		if inner == nil {
			inner = siblings(t, name)
		}
		set(t, inner, rest, value, alone-1)
		content[name] = inner
	}
}

// TestExamples_AreAccepted sets each field to each example in its description, in a sample and in the smallest object,
// with the field's siblings, and without those at one level. The API server has to accept one of these objects.
func TestExamples_AreAccepted(t *testing.T) {
	definitions, err := envtest.Build("config/crd")
	if err != nil {
		t.Fatal(err)
	}
	samples, err := envtest.Build("config/samples")
	if err != nil {
		t.Fatal(err)
	}
	all, count := kinds(), 0
	for _, file := range definitions {
		var definition apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(file.Object, &definition))
		k, ok := all[definition.Spec.Names.Kind]
		if !ok {
			k = kind{definition.Spec.Names.Kind, schema.GroupVersionResource{Group: definition.Spec.Group, Version: definition.Spec.Versions[0].Name, Resource: definition.Spec.Names.Plural}, definition.Spec.Scope == apiextensionsv1.NamespaceScoped}
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		for _, e := range examplesIn(spec, "spec") {
			count++
			t.Run(k.name+"."+strings.Join(e.path, ".")+"="+e.text, func(t *testing.T) {
				var value any
				must.Succeed(t, yaml.Unmarshal([]byte(e.text), &value))
				var bases []map[string]any
				if ok {
					smallest := object(t, k, "example", "")
					if programs, ok := spec.Properties["programs"]; ok {
						var types []string
						for _, name := range programs.Items.Schema.Properties["type"].Enum {
							types = append(types, strings.Trim(string(name.Raw), `"`))
						}
						smallest.Object["spec"] = decode(t, envtest.Spec(k.name, types...))
					}
					bases = append(bases, smallest.Object)
				}
				for _, sample := range samples {
					if sample.GetKind() == k.name {
						bases = append(bases, sample.Object)
					}
				}
				var refused []error
				for _, base := range bases {
					for alone := range len(e.path) + 1 {
						content := decode(t, encode(t, base))
						set(t, content, e.path, runtime.DeepCopyJSONValue(value), len(e.path)-alone)
						tried := &unstructured.Unstructured{Object: content}
						tried.SetName("example")
						if k.namespaced {
							tried.SetNamespace(metav1.NamespaceDefault)
						}
						_, err := client(t, k).Create(deadline(t), tried, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
						if err == nil {
							return
						}
						refused = append(refused, err)
					}
				}
				t.Errorf("refused: %v", refused)
			})
		}
	}
	if count < 100 {
		t.Errorf("%d examples, which can't be all", count)
	}
}
