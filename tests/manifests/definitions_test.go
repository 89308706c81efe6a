// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// formats are the limits that the API server enforces for integers of a format.
var formats = map[string][2]string{
	"int32": {"-2147483648", "2147483647"},
	"int64": {"-9223372036854775808", "9223372036854775807"},
}

// ranged matches the rule of a field that has an integer or a string.
var ranged = regexp.MustCompile(`^type\(self\) == string \|\| self >= (\d+) && self <= (\d+)$`)

// The smallest and the largest integer that the API server admits in a field fit into the field's Go type. Otherwise,
// one object could make the list of its kind undecodable.
func TestIntegersFit(t *testing.T) {
	for _, kind := range v1alpha1.AllKinds() {
		found := 0
		for _, version := range definition(t, kind.Resource()).Spec.Versions {
			visit(version.Schema.OpenAPIV3Schema, "%s", "", func(path, wrap string, s *apiextensionsv1.JSONSchemaProps) {
				found++
				limits, known := limitsOf(s)
				if !known {
					t.Errorf("%s%s has no minimum and maximum", kind.Name, path)
				}
				for _, value := range limits {
					if err := kjson.UnmarshalCaseSensitivePreserveInts(fmt.Appendf(nil, wrap, value), kind.New()); err != nil {
						t.Errorf("%s%s can be %s: %v", kind.Name, path, value, err)
					}
				}
			})
		}
		if found == 0 {
			t.Errorf("%s has no integer", kind.Name)
		}
	}
}

// A column shows only the first value that its path selects.
func TestColumnsSelectOneValue(t *testing.T) {
	for _, kind := range v1alpha1.AllKinds() {
		for _, version := range definition(t, kind.Resource()).Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				if strings.Contains(column.JSONPath, "*") {
					t.Errorf("%s: the column %s shows one of %s", kind.Name, column.Name, column.JSONPath)
				}
			}
		}
	}
}

func definition(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "bpfman.io_"+resource+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

// visit calls found for each integer of a schema. wrap is the format of a JSON object with a value in the field.
func visit(s *apiextensionsv1.JSONSchemaProps, wrap, path string, found func(path, wrap string, s *apiextensionsv1.JSONSchemaProps)) {
	if s.Type == "integer" || s.XIntOrString {
		found(path, wrap, s)
	}
	for name, property := range s.Properties {
		key, _ := json.Marshal(name) //nolint:errchkjson // a string
		visit(&property, fmt.Sprintf(wrap, "{"+string(key)+":%s}"), path+"."+name, found)
	}
	if s.Items != nil && s.Items.Schema != nil {
		visit(s.Items.Schema, fmt.Sprintf(wrap, "[%s]"), path+"[]", found)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		visit(s.AdditionalProperties.Schema, fmt.Sprintf(wrap, `{"key":%s}`), path+"{}", found)
	}
}

func limitsOf(s *apiextensionsv1.JSONSchemaProps) (limits [2]string, known bool) {
	if s.XIntOrString {
		for _, rule := range s.XValidations {
			if m := ranged.FindStringSubmatch(rule.Rule); m != nil {
				return [2]string{m[1], m[2]}, true
			}
		}
		return limits, false
	}
	limits, known = formats[s.Format]
	if s.Minimum != nil {
		limits[0] = fmt.Sprintf("%.0f", *s.Minimum)
	}
	if s.Maximum != nil {
		limits[1] = fmt.Sprintf("%.0f", *s.Maximum)
	}
	return limits, known || s.Minimum != nil && s.Maximum != nil
}
