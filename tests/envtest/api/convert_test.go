// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/convert"
)

// The API server accepts objects that were converted from upstream's v0.6, with all fields, and
// ClusterBpfApplications as they are.
func TestConvertedObjectsAreValid(t *testing.T) {
	inputs, err := filepath.Glob("../../../cli/convert/testdata/*.*[nl]")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	made := 0
	for _, input := range inputs {
		f, err := os.Open(input)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := convert.Read(input, f)
		_ = f.Close() // it was only read
		if err != nil {
			t.Fatal(err)
		}
		result, err := convert.Convert(objects)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range result.Objects {
			object := asWritten(t, o)
			if object == nil {
				continue
			}
			made++
			if object.GetNamespace() != "" {
				object.SetNamespace(metav1.NamespaceDefault)
			}
			options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			if _, err := client(t, kinds()[object.GetKind()]).Create(deadline(t), object, options); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(input), object.GetKind(), object.GetName(), err)
			}
		}
	}
	if made == 0 {
		t.Error("nothing was converted")
	}
}

// asWritten returns an object of this API without what the API server has set, or nil for another object.
func asWritten(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	if user, ok := o.(v1alpha1.UserObject); ok {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(user)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: content}
	}
	content, ok := o.(map[string]any)
	object := &unstructured.Unstructured{Object: content}
	if !ok || object.GetKind() != "ClusterBpfApplication" {
		return nil
	}
	object.SetUID("")
	object.SetResourceVersion("")
	delete(content, "status")
	return object
}
