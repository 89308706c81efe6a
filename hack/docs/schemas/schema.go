// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is a JSON object: a schema, or a part of one.
type object = map[string]any

// dialect is a version that editors and kubeconform support.
const dialect = "http://json-schema.org/draft-07/schema#"

// reference refers to the schema of one kind.
type reference struct {
	apiVersion, kind, file string
}

// ofKind returns the schema for objects of a kind.
func ofKind(group, version, kind string, structural *apiextensionsv1.JSONSchemaProps) (object, error) {
	content, err := json.Marshal(structural)
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	var schema object
	if err := json.Unmarshal(content, &schema); err != nil {
		return nil, fmt.Errorf("decode the schema: %w", err)
	}
	convert(schema)
	properties, ok := schema["properties"].(object)
	if !ok {
		return nil, fmt.Errorf("the schema of %s has no properties", kind)
	}
	properties["apiVersion"] = object{"type": "string", "const": group + "/" + version}
	properties["kind"] = object{"type": "string", "const": kind}
	properties["metadata"] = metadata()
	required := []string{"apiVersion", "kind", "metadata"}
	// The API server accepts an object without a spec, which has no effect.
	if _, has := properties["spec"]; has {
		required = append(required, "spec")
	}
	schema["required"] = required
	schema["$schema"] = dialect
	schema["title"] = kind
	return schema, nil
}

// convert converts a structural schema to JSON schema, in place. Where the API server drops or refuses unknown
// fields, the result refuses them. It drops rules in CEL.
func convert(schema object) {
	open := schema["x-kubernetes-preserve-unknown-fields"] == true
	if schema["x-kubernetes-int-or-string"] == true {
		delete(schema, "anyOf")
		schema["type"] = []string{"integer", "string"}
	}
	if schema["nullable"] == true {
		schema["type"] = []any{schema["type"], "null"}
		delete(schema, "nullable")
	}
	for key := range schema {
		if strings.HasPrefix(key, "x-kubernetes-") {
			delete(schema, key)
		}
	}
	if properties, ok := schema["properties"].(object); ok {
		for _, property := range properties {
			convertIn(property)
		}
		if _, has := schema["additionalProperties"]; !has && !open && schema["type"] != nil {
			schema["additionalProperties"] = false
		}
	}
	convertIn(schema["items"])
	convertIn(schema["additionalProperties"])
	convertIn(schema["not"])
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		parts, _ := schema[key].([]any)
		for _, part := range parts {
			convertIn(part)
		}
	}
}

// convertIn converts value if it is a schema.
func convertIn(value any) {
	if schema, ok := value.(object); ok {
		convert(schema)
	}
}

// metadata returns the schema for the metadata of all objects, which definitions don't include.
func metadata() object {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	properties := object{}
	for field := range reflect.TypeFor[metav1.ObjectMeta]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := ofType(field.Type)
		property["description"] = descriptions[name]
		properties[name] = property
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// ofType returns the schema for a field of the metadata. It doesn't describe the content of fields that users
// don't write.
func ofType(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[*metav1.Time]():
		return object{"type": []string{"string", "null"}, "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return ofType(t.Elem())
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	case t.Kind() == reflect.Int64:
		return object{"type": "integer"}
	case t.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": ofType(t.Elem())}
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": ofType(t.Elem())}
	default:
		return object{"type": "object"}
	}
}

// ofAny returns the schema for objects of any of the kinds.
func ofAny(references []reference) object {
	var kinds, versions, rules []any
	for _, r := range references {
		kinds = append(kinds, r.kind)
		versions = append(versions, r.apiVersion)
		rules = append(rules, object{
			"if":   object{"properties": object{"apiVersion": object{"const": r.apiVersion}, "kind": object{"const": r.kind}}, "required": []string{"apiVersion", "kind"}},
			"then": object{"$ref": r.file},
		})
	}
	return object{
		"$schema":  dialect,
		"type":     "object",
		"required": []string{"apiVersion", "kind"},
		"properties": object{
			"apiVersion": object{"enum": unique(versions)},
			"kind":       object{"enum": kinds},
		},
		"allOf": rules,
	}
}

func unique(values []any) []any {
	seen := map[any]bool{}
	var out []any
	for _, value := range values {
		if !seen[value] {
			out = append(out, value)
		}
		seen[value] = true
	}
	return out
}
