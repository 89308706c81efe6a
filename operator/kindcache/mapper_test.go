// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kindcache

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
	mapper, err := Mapper(runtime.NewScheme())(&rest.Config{Host: s.URL}, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range v1alpha1.AllKinds() {
		mapping, err := mapper.RESTMapping(k.GroupVersionKind().GroupKind(), v1alpha1.SchemeGroupVersion.Version)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; mapping.Resource != k.GroupVersionResource() || namespaced != k.Namespaced {
			t.Errorf("%s: %s of scope %s", k.Name, mapping.Resource, mapping.Scope.Name())
		}
	}
}
