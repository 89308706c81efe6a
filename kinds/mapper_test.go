// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Every agent maps these kinds: none of them may ask the API server for all that the cluster has.
func TestMapperKnowsWhatAgentsRead(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("it asks for %s", r.URL)
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	mapper, err := Mapper(&rest.Config{Host: s.URL}, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	type resource struct {
		plural string
		scope  meta.RESTScopeName
	}
	expected := map[schema.GroupVersionKind]resource{
		corev1.SchemeGroupVersion.WithKind("Node"):      {"nodes", meta.RESTScopeNameRoot},
		corev1.SchemeGroupVersion.WithKind("Pod"):       {"pods", meta.RESTScopeNameNamespace},
		corev1.SchemeGroupVersion.WithKind("ConfigMap"): {"configmaps", meta.RESTScopeNameNamespace},
		corev1.SchemeGroupVersion.WithKind("Secret"):    {"secrets", meta.RESTScopeNameNamespace},
	}
	scopes := map[bool]meta.RESTScopeName{true: meta.RESTScopeNameNamespace, false: meta.RESTScopeNameRoot}
	for _, k := range v1alpha1.UserKinds {
		expected[k.GroupVersionKind()] = resource{k.Resource(), scopes[k.Namespaced]}
	}
	for _, k := range v1alpha1.ProgramKinds {
		expected[k.GroupVersionKind()] = resource{k.Resource(), scopes[k.Namespaced]}
	}
	for gvk, want := range expected {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		if mapping.Resource != gvk.GroupVersion().WithResource(want.plural) || mapping.Scope.Name() != want.scope {
			t.Errorf("%s: %s of scope %s", gvk, mapping.Resource, mapping.Scope.Name())
		}
	}
}
