// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package api tests how the API server handles the project's objects: what it refuses,
// its defaults, what it prunes, and what kubectl shows.
package api

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

func TestMain(m *testing.M) { envtest.Main(m) }

// kind contains what the tests need to know about each kind that users or agents write.
type kind struct {
	name       string
	resource   schema.GroupVersionResource
	namespaced bool
}

func kinds() map[string]kind {
	all := map[string]kind{}
	for _, k := range v1alpha1.UserKinds {
		all[k.Name] = kind{k.Name, k.GroupVersionResource(), k.Namespaced}
	}
	for _, k := range v1alpha1.ProgramKinds {
		all[k.Name] = kind{k.Name, k.GroupVersionResource(), k.Namespaced}
	}
	return all
}

// object returns the smallest valid object of the kind, with a JSON merge patch applied
// to its spec. "" changes nothing.
func object(t *testing.T, k kind, name, specPatch string) *unstructured.Unstructured {
	t.Helper()
	spec := []byte(`{}`) // of a report
	if k.name != "BpfProgram" && k.name != "BpfNsProgram" {
		spec = []byte(envtest.Spec(k.name))
	}
	if specPatch != "" {
		var err error
		if spec, err = jsonpatch.MergePatch(spec, []byte(specPatch)); err != nil {
			t.Fatalf("patch %s with %s: %v", spec, specPatch, err)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": decode(t, string(spec))}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(k.name))
	o.SetName(name)
	if k.namespaced {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	// The decoder of unstructured objects keeps integers as int64.
	var wrapped unstructured.Unstructured
	if err := wrapped.UnmarshalJSON([]byte(`{"kind":"x","value":` + text + `}`)); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	value, ok := wrapped.Object["value"].(map[string]any)
	if !ok {
		t.Fatalf("%s isn't an object", text)
	}
	return value
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// at returns the JSON of the value at a path in an object, or "" if there is none.
func at(t *testing.T, o *unstructured.Unstructured, path ...string) string {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return ""
	}
	return encode(t, value)
}

func client(t *testing.T, k kind) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(envtest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	if k.namespaced {
		return c.Resource(k.resource).Namespace(metav1.NamespaceDefault)
	}
	return c.Resource(k.resource)
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// afterTest returns a context for cleaning up after the context of the test has ended.
func afterTest() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// create creates an object until the test ends.
func create(t *testing.T, k kind, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	c := client(t, k)
	created, err := c.Create(deadline(t), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %s: %v", k.name, o.GetName(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := afterTest()
		defer cancel()
		if err := c.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete %s %s: %v", k.name, o.GetName(), err)
		}
	})
	return created
}
