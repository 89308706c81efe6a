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

	read := func(tag string) (digest string, object []byte, err error) {
		layer, err := images.Layer(t.Context(), r.image(tag), Credentials{})
		if err != nil {
			return "", nil, err
		}
		defer layer.Close()
		object, err = layer.Object(t.Context())
		return layer.Digest, object, err
	}
	if digest, object, err := read("one"); err != nil || digest != one.Digest || !bytes.Equal(object, make([]byte, 3)) {
		t.Errorf("digest %s, object %q, %v", digest, object, err)
	}
	for _, tag := range []string{"two", "elsewhere", "no-archive", "large", "absent"} {
		if _, object, err := read(tag); err == nil {
			t.Errorf("%s: an object of %d bytes", tag, len(object))
		}
	}
}
