// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// sample reads the first object of the kind from config/samples.
func sample(t *testing.T, kind string) v1alpha1.UserObject {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", "samples", "bpfman.io_v1alpha1_*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var header metav1.TypeMeta
		if err := yaml.Unmarshal(text, &header); err != nil || header.Kind != kind {
			continue
		}
		for _, k := range v1alpha1.UserKinds {
			if k.Name != kind {
				continue
			}
			o := k.New()
			if err := yaml.Unmarshal(text, o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			return o
		}
	}
	t.Fatalf("no sample of %s", kind)
	return nil
}
