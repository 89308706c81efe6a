// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
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
