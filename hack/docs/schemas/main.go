// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command schemas writes a JSON schema of each kind from its CustomResourceDefinition, for editors, and for tools
// that validate manifests without a cluster. Its arguments are the directory of definitions, and the output
// directory.
//
// The files have the names that kubeconform expects: GROUP/KIND_VERSION.json. GROUP/all.json is the schema of
// files with objects of any kind.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: schemas DEFINITIONS DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(definitions, directory string) error {
	paths, err := filepath.Glob(filepath.Join(definitions, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list %s: %w", definitions, err)
	}
	all := map[string][]reference{} // by group
	for _, path := range paths {
		content, err := os.ReadFile(path) //nolint:gosec // the caller specifies the directory
		if err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &definition); err != nil {
			return fmt.Errorf("decode %s: %w", path, err)
		}
		group, kind := definition.Spec.Group, definition.Spec.Names.Kind
		for _, version := range definition.Spec.Versions {
			schema, err := ofKind(group, version.Name, kind, version.Schema.OpenAPIV3Schema)
			if err != nil {
				return fmt.Errorf("convert %s: %w", path, err)
			}
			file := strings.ToLower(kind) + "_" + version.Name + ".json"
			if err := write(filepath.Join(directory, group, file), schema); err != nil {
				return err
			}
			all[group] = append(all[group], reference{group + "/" + version.Name, kind, file})
		}
	}
	for group, references := range all {
		if err := write(filepath.Join(directory, group, "all.json"), ofAny(references)); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, schema object) error {
	content, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // everyone can read published files
		return fmt.Errorf("write a schema: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil { //nolint:gosec // The same.
		return fmt.Errorf("write a schema: %w", err)
	}
	return nil
}
