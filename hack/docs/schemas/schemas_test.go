// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// TestSamples validates the samples against the schema of their kind. It then adds an unknown field to each object
// in them, which must be refused.
func TestSamples(t *testing.T) {
	compile := generate(t)
	all := compile("all.json")
	samples := readSamples(t)
	for name, sample := range samples {
		kind, ok := sample["kind"].(string)
		if !ok {
			t.Fatalf("%s: no kind", name)
		}
		own := compile(strings.ToLower(kind) + "_v1alpha1.json")
		for _, schema := range []*jsonschema.Schema{own, all} {
			if err := schema.Validate(sample); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for path, part := range objects("", sample) {
			if free(path) {
				continue
			}
			part["surplus"] = "value"
			for _, schema := range []*jsonschema.Schema{own, all} {
				if err := schema.Validate(sample); err == nil {
					t.Errorf("%s: an unknown field in %s is accepted by %s", name, path, schema.Location)
				}
			}
			delete(part, "surplus")
		}
	}
	if len(samples) < 20 {
		t.Errorf("%d samples, which can't be all", len(samples))
	}
}

// TestRefusals validates objects that must be refused.
func TestRefusals(t *testing.T) {
	all := generate(t)("all.json")
	for name, manifest := range map[string]string{
		"another kind":          "apiVersion: bpfman.io/v1alpha1\nkind: XdpProgramme\nmetadata: {name: a}\nspec: {}\n",
		"another version":       "apiVersion: bpfman.io/v1\nkind: XdpProgram\nmetadata: {name: a}\nspec: {}\n",
		"no spec":               "apiVersion: bpfman.io/v1alpha1\nkind: XdpProgram\nmetadata: {name: a}\n",
		"a list of another":     "apiVersion: v1\nkind: List\nitems: []\n",
		"a label with a number": "apiVersion: bpfman.io/v1alpha1\nkind: BpfNode\nmetadata: {name: a, labels: {b: 1}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if err := all.Validate(decode(t, []byte(manifest))); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// generate generates the schemas, and returns a function that compiles one of them.
func generate(t *testing.T) func(file string) *jsonschema.Schema {
	t.Helper()
	directory := t.TempDir()
	if err := run(filepath.Join(root, "config/crd/bases"), directory); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	return func(file string) *jsonschema.Schema {
		schema, err := compiler.Compile(filepath.Join(directory, "bpfman.io", file))
		if err != nil {
			t.Fatal(err)
		}
		return schema
	}
}

// readSamples reads the objects of the project's kinds in config/samples, by file and name.
func readSamples(t *testing.T) map[string]map[string]any {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]map[string]any{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			sample := decode(t, document)
			if version, _ := sample["apiVersion"].(string); !strings.HasPrefix(version, "bpfman.io/") {
				continue
			}
			metadata, ok := sample["metadata"].(map[string]any)
			if !ok {
				t.Fatalf("%s: no metadata", path)
			}
			name, ok := metadata["name"].(string)
			if !ok {
				t.Fatalf("%s: no name", path)
			}
			samples[filepath.Base(path)+" "+name] = sample
		}
	}
	return samples
}

func decode(t *testing.T, document []byte) map[string]any {
	t.Helper()
	content, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	decoded, ok := value.(map[string]any)
	if !ok {
		t.Fatalf("not an object:\n%s", document)
	}
	return decoded
}

// objects returns all JSON objects within an object, with their paths.
func objects(path string, value any) map[string]map[string]any {
	found := map[string]map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		found[path] = value
		for key, child := range value {
			maps.Copy(found, objects(path+"."+key, child))
		}
	case []any:
		for _, child := range value {
			maps.Copy(found, objects(path+"[]", child))
		}
	}
	return found
}

// free reports whether users choose the keys of an object.
func free(path string) bool {
	for _, suffix := range []string{"abels", ".annotations", ".globaldata", ".globals"} {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}
