// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// listed contains what Artifact Hub reads from Chart.yaml. Its annotations are texts in YAML.
type listed struct {
	Icon        string            `json:"icon"`
	Annotations map[string]string `json:"annotations"`
}

// annotations are the annotations in https://artifacthub.io/docs/topics/annotations/helm that the chart uses.
var annotations = []string{"category", "crds", "crdsExamples", "images", "license", "links", "operator", "operatorCapabilities"}

type definition struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

func readListed(t *testing.T) listed {
	t.Helper()
	var chart listed
	content := must.Read(t, filepath.Join(root, "charts/bpfman-operator/Chart.yaml"))
	must.Succeed(t, yaml.Unmarshal(content, &chart))
	for name := range chart.Annotations {
		if known, ok := strings.CutPrefix(name, "artifacthub.io/"); !ok || !slices.Contains(annotations, known) {
			t.Errorf("Artifact Hub reads no annotation %s", name)
		}
	}
	return chart
}

// annotation decodes an annotation, and refuses fields that T doesn't have.
func annotation[T any](t *testing.T, name string) T {
	t.Helper()
	var value T
	text, ok := readListed(t).Annotations["artifacthub.io/"+name]
	if !ok {
		t.Fatalf("there is no annotation %s", name)
	}
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// TestListedDefinitions compares the definitions that Artifact Hub shows with those in the chart.
func TestListedDefinitions(t *testing.T) {
	want := map[string]definition{}
	for _, name := range files(t, "config/crd/bases") {
		var crd apiextensionsv1.CustomResourceDefinition
		content := must.Read(t, name)
		must.Succeed(t, yaml.Unmarshal(content, &crd))
		want[crd.Name] = definition{Kind: crd.Spec.Names.Kind, Version: crd.Spec.Versions[0].Name, Name: crd.Name}
	}
	got := map[string]definition{}
	for _, d := range annotation[[]definition](t, "crds") {
		if d.DisplayName == "" || !strings.HasPrefix(d.Description, d.Kind+" ") {
			t.Errorf("%s has the name %q, and the description %q", d.Name, d.DisplayName, d.Description)
		}
		d.DisplayName, d.Description = "", ""
		got[d.Name] = d
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestListedExamples decodes the examples, and refuses unknown fields.
func TestListedExamples(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.Install(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	examples := annotation[[]map[string]any](t, "crdsExamples")
	if len(examples) == 0 {
		t.Error("there are none")
	}
	for _, example := range examples {
		content, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decoder.Decode(content, nil, nil); err != nil {
			t.Errorf("%v in:\n%s", err, content)
		}
	}
}

// TestListedImages compares the images that Artifact Hub scans with those in the values.
func TestListedImages(t *testing.T) {
	var values struct {
		Images map[string]any `json:"images"`
		// Its image is among its other values.
		Exporter struct {
			Image string `json:"image"`
		} `json:"exporter"`
	}
	content := must.Read(t, filepath.Join(root, "charts/bpfman-operator/values.yaml"))
	must.Succeed(t, yaml.Unmarshal(content, &values))
	want := map[string]string{"exporter": values.Exporter.Image}
	for name, image := range values.Images {
		if image, ok := image.(string); ok && name != "pullPolicy" {
			want[name] = image
		}
	}
	got := map[string]string{}
	for _, image := range annotation[[]struct {
		Name  string `json:"name"`
		Image string `json:"image"`
	}](t, "images") {
		got[image.Name] = image.Image
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v are listed, and %v are used", got, want)
	}
}

// TestListedLinks checks that the repository's files that Chart.yaml and the chart's README link to exist. They
// are read in other places, so each link has a host.
func TestListedLinks(t *testing.T) {
	chart := readListed(t)
	readme := must.Read(t, filepath.Join(root, "charts/bpfman-operator/README.md"))
	text := chart.Icon + "\n" + chart.Annotations["artifacthub.io/links"] + "\n" + string(readme)
	found := regexp.MustCompile(`bpfman/bpfman-operator/(?:blob/)?main/([^\s)#]+)`).FindAllStringSubmatch(text, -1)
	if len(found) < 5 {
		t.Errorf("only %d links", len(found))
	}
	for _, link := range found {
		if _, err := os.Stat(filepath.Join(root, link[1])); err != nil {
			t.Errorf("%s: %v", link[0], err)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(readme), -1) {
		if !strings.HasPrefix(link[1], "https://") {
			t.Errorf("the chart's README links to %s, which only the repository has", link[1])
		}
	}
}

func files(t *testing.T, directory string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, directory, "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", directory, err)
	}
	return names
}
