// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// definitionsFile has the schemas that `kubectl bpfman validate` checks without a cluster.
const definitionsFile = "cli/validate/definitions.json"

// namespacedDirectory has the definition of the BpfApplication that is namespaced.
const namespacedDirectory = "config/namespaced/crd"

// writeDefinitions writes the schemas of the kinds that users write, without descriptions, in a line each.
func writeDefinitions(directory string) error {
	var out bytes.Buffer
	separator := "["
	scheme := runtime.NewScheme()
	if err := namespaced.Install(scheme); err != nil {
		return err
	}
	byScope := slices.IndexFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == "BpfApplication" })
	for _, k := range append(v1alpha1.AllKinds(), v1alpha1.AllKindsOf(scheme)[byScope]) {
		directory := directory
		if k.Name == "BpfApplication" && k.Namespaced {
			directory = namespacedDirectory
		}
		if slices.Contains([]string{"BpfProgram", "BpfNsProgram", "BpfNode"}, k.Name) {
			continue // bpfman writes them
		}
		file := filepath.Join(directory, v1alpha1.SchemeGroupVersion.Group+"_"+k.Resource()+".yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &definition); err != nil {
			return fmt.Errorf("decode %s: %w", file, err)
		}
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		delete(schema.Properties, "status")
		undescribed(schema)
		line, err := json.Marshal(map[string]any{"kind": k.Name, "namespaced": k.Namespaced, "schema": schema})
		if err != nil {
			return fmt.Errorf("encode the schema of %s: %w", k.Name, err)
		}
		out.WriteString(separator + "\n")
		out.Write(line)
		separator = ","
	}
	out.WriteString("\n]\n")
	if err := os.WriteFile(definitionsFile, out.Bytes(), 0o644); err != nil { //nolint:gosec // it is in the repository
		return fmt.Errorf("write the schemas: %w", err)
	}
	return nil
}

// undescribed removes the descriptions of a schema.
func undescribed(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description = ""
	for name, property := range s.Properties {
		undescribed(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		undescribed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		undescribed(s.AdditionalProperties.Schema)
	}
}
