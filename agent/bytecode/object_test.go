// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"bytes"
	"testing"
)

func TestObject(t *testing.T) {
	r := newRegistry(t)
	config := r.blob([]byte("{}"))
	one, two := r.blob(zipped(t, 3, 5)), r.blob(zipped(t, 7))
	elsewhere := one
	elsewhere.URLs = []string{"https://example.com/layer"}
	r.manifest("one", manifest{Config: config, Layers: []descriptor{one}})
	r.manifest("two", manifest{Config: config, Layers: []descriptor{one, two}})
	r.manifest("elsewhere", manifest{Config: config, Layers: []descriptor{elsewhere}})
	r.manifest("no-archive", manifest{Config: config, Layers: []descriptor{r.blob([]byte("text"))}})
	r.manifest("large", manifest{Config: config, Layers: []descriptor{r.blob(zipped(t, maxObject+1))}})
	images := Registries{Transport: r.Client().Transport}

	object, err := images.Object(t.Context(), r.image("one"), Credentials{})
	if err != nil || !bytes.Equal(object, make([]byte, 3)) {
		t.Errorf("object %q, %v", object, err)
	}
	for _, tag := range []string{"two", "elsewhere", "no-archive", "large", "absent"} {
		if object, err := images.Object(t.Context(), r.image(tag), Credentials{}); err == nil {
			t.Errorf("%s: an object of %d bytes", tag, len(object))
		}
	}
}
