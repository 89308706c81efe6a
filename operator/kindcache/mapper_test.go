// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kindcache

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The API server may lack the definitions of the API's own kinds.
func TestMapperKnowsTheKindsOfTheAPI(t *testing.T) {
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
	expected := map[schema.GroupVersionKind]resource{}
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
