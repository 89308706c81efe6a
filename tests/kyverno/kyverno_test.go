// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kyverno tests config/hardened/kyverno.yaml with Kyverno's own code. It is a separate module outside of
// go.work, because it needs most of Kyverno: make test-kyverno.
package kyverno

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/utils/api"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func policy(t *testing.T) *kyvernov1.ClusterPolicy {
	t.Helper()
	content, err := os.ReadFile("../../config/hardened/kyverno.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy kyvernov1.ClusterPolicy
	if err := yaml.UnmarshalStrict(content, &policy); err != nil {
		t.Fatal(err)
	}
	return &policy
}

func TestKyvernoTakesThePolicy(t *testing.T) {
	warnings, errs := policy(t).Validate(sets.New[string]())
	if len(errs) > 0 || len(warnings) > 0 {
		t.Errorf("warnings %q, errors %v", warnings, errs)
	}
}

// TestKyvernoSeesBytecode checks that Kyverno finds the bytecode images in each sample, at the field to which it
// writes the digest, and none for a file.
func TestKyvernoSeesBytecode(t *testing.T) {
	extractors := policy(t).Spec.Rules[0].ImageExtractors
	samples, err := filepath.Glob("../../config/samples/bpfman.io_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, sample := range samples {
		for _, object := range read(t, sample) {
			url, fromImage, _ := unstructured.NestedString(object.Object, "spec", "bytecode", "image", "url")
			images, err := api.ExtractImagesFromResource(object, extractors, config.NewDefaultConfiguration(false))
			if err != nil {
				t.Errorf("%s: %v", sample, err)
				continue
			}
			found := images["custom"]
			if !fromImage && len(found) > 0 {
				t.Errorf("%s: found %v", sample, found)
			}
			if !fromImage {
				continue
			}
			seen[object.GetKind()] = true
			if len(found) != 1 {
				t.Errorf("%s: found %v, want %s", sample, found, url)
			}
			for _, image := range found {
				if image.String() != url || image.Pointer != "/spec/bytecode/image/url" {
					t.Errorf("%s: found %s at %s, want %s", sample, image.String(), image.Pointer, url)
				}
			}
		}
	}
	for kind := range extractors {
		if !seen[kind] {
			t.Errorf("there is no sample of %s", kind)
		}
	}
}

func read(t *testing.T, path string) []unstructured.Unstructured {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var objects []unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); err == io.EOF {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
}
