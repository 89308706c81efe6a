// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
)

// The layer of an image is read once, even if its Load fails and is retried, or it
// can't be decoded. If another image has the same name, its layer is read.
func TestDeclarationsAreReadOnce(t *testing.T) {
	var read atomic.Int32
	handler := registry.New()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			read.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	image := strings.TrimPrefix(server.URL, "https://") + "/bytecode/x:latest"
	registries := &bytecode.Registries{Transport: server.Client().Transport}
	var kept declarations

	for n, c := range []struct {
		object  string
		fails   bool
		reading int32
	}{
		{object: "no eBPF object, and no map of it", reading: 1},
		{object: "no eBPF object, though with a word in it: pinning", fails: true, reading: 2},
		{object: "no eBPF object, and no map of it", reading: 2},
	} {
		push(t, server, image, c.object)
		_, err := kept.of(t.Context(), registries, image, bytecode.Credentials{})
		_, again := kept.of(t.Context(), registries, image, bytecode.Credentials{})
		if (err != nil) != c.fails || again != nil || read.Load() != c.reading {
			t.Errorf("%d: %v, then %v, after reading %d objects, not %d", n, err, again, read.Load(), c.reading)
		}
	}
}

// push pushes an image with one file, and replaces an earlier one with the same name.
func push(t *testing.T, server *httptest.Server, image, object string) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: "x.o", Typeflag: tar.TypeReg, Size: int64(len(object)), Mode: 0o600}
	if err := w.WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(w, object); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	packed, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, packed, remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
}
