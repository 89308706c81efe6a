// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/convert"
)

// `make generate` writes the definitions, and so adds a new kind.
func TestEachKindHasADefinition(t *testing.T) {
	t.Parallel()
	known, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range v1alpha1.UserKinds {
		if d, there := known[k.Name]; !there || d.Namespaced != k.Namespaced || len(d.Schema.Properties) == 0 {
			t.Errorf("%s: %t, namespaced %t", k.Name, there, d.Namespaced)
		}
	}
}

// A BpfApplication with the fields of v0.6 is checked as a namespaced one.
func TestApplicationsOfEitherScope(t *testing.T) {
	t.Parallel()
	const (
		linked = `"nodeSelector":{},"byteCode":{"path":"/x.o"},"programs":[{"name":"fun","type":"UProbe","uprobe":{"links":[{"target":"libc","containers":{"pods":{}}}]}}]`
		v05    = `"nodeselector":{},"bytecode":{"path":"/x.o"}`
	)
	for spec, want := range map[string]struct{ namespace, problem string }{
		linked: {"team", ""},
		v05:    {"", ""},
		strings.Replace(linked, `"pods":{}`, `"pods":{},"namespace":"other"`, 1): {"team", "unknown field spec.programs[0].uprobe.links[0].containers.namespace"},
		strings.Replace(linked, `,"containers":{"pods":{}}`, ``, 1):              {"team", "spec.programs[0].uprobe.links[0].containers: Required value"},
	} {
		content := `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfApplication","metadata":{"name":"x"},"spec":{` + spec + `}}`
		r, err := Check(t.Context(), convert.Object{JSON: []byte(content)}, "team")
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(r.Errors, "\n"); r.Namespace != want.namespace || !strings.Contains(said, want.problem) || (said == "") != (want.problem == "") {
			t.Errorf("%s in namespace %q: %s", spec, r.Namespace, said)
		}
		if want.problem == "" && (r.Object == nil || *r.Object.GetAppCommon().ByteCode.Path != "/x.o" || r.Object.GetNamespace() != want.namespace) {
			t.Errorf("%s is %+v", spec, r.Object)
		}
	}
}
