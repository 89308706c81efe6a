// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	images "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// certificates is the file with the trusted certificates. All servers in these tests
// have the same certificate.
var certificates string

func TestMain(m *testing.M) {
	os.Exit(within(m))
}

func within(m *testing.M) int {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	directory, err := os.MkdirTemp("", "bpfman-reader")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(directory)
	certificates = filepath.Join(directory, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(certificates, block, 0o600); err != nil {
		log.Print(err)
		return 1
	}
	// The agent's container has this variable for the registries' authorities.
	if err := os.Setenv("SSL_CERT_FILE", certificates); err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

// testRegistry is a registry, with or without the referrers API.
type testRegistry struct {
	*httptest.Server
	t *testing.T
}

func newRegistry(t *testing.T, referrers bool) *testRegistry {
	t.Helper()
	return serve(t, images.New(images.Logger(log.New(io.Discard, "", 0)), images.WithReferrersSupport(referrers)))
}

func serve(t *testing.T, handler http.Handler) *testRegistry {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return &testRegistry{server, t}
}

func (f *testRegistry) host() string { return strings.TrimPrefix(f.URL, "https://") }

func (f *testRegistry) reference(version string) name.Reference {
	f.t.Helper()
	r, err := name.ParseReference(f.host() + "/acme/xdp" + version)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *testRegistry) options() []remote.Option {
	return []remote.Option{remote.WithTransport(f.Client().Transport), remote.WithContext(f.t.Context())}
}

// push pushes an image of bytecode. Different content results in different images.
func (f *testRegistry) push(content string) string {
	f.t.Helper()
	return f.pushImage(bytecodeImage(f.t, []byte(content)))
}

func (f *testRegistry) pushImage(image v1.Image) string {
	f.t.Helper()
	digest, err := image.Digest()
	if err != nil {
		f.t.Fatal(err)
	}
	at := f.reference("@" + digest.String())
	if err := remote.Write(at, image, f.options()...); err != nil {
		f.t.Fatal(err)
	}
	return at.String()
}

// pushIndex pushes an index for two architectures, and returns its digest and the
// digests of its images.
func (f *testRegistry) pushIndex(contents ...string) (string, []v1.Hash) {
	f.t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var parts []v1.Hash
	for i, content := range contents {
		image := bytecodeImage(f.t, []byte(content))
		digest, err := image.Digest()
		if err != nil {
			f.t.Fatal(err)
		}
		parts = append(parts, digest)
		platform := &v1.Platform{OS: "linux", Architecture: []string{"amd64", "arm64"}[i]}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	digest, err := index.Digest()
	if err != nil {
		f.t.Fatal(err)
	}
	at := f.reference("@" + digest.String())
	if err := remote.WriteIndex(at, index, f.options()...); err != nil {
		f.t.Fatal(err)
	}
	return at.String(), parts
}

// compiled returns an object that `make bytecode` has built.
func compiled(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile("../../../bin/bytecode/go-app-counter.o")
	if err != nil {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return content
}

func bytecodeImage(t *testing.T, object []byte) v1.Image {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "xdp.o", Mode: 0o644, Size: int64(len(object))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(object); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(b.Bytes(), types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// ask runs the command's code in this process.
func ask(t *testing.T, request reader.Request) reader.Answer {
	t.Helper()
	in, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var out, object, adapted bytes.Buffer
	opened := false
	open := func() files {
		opened = true
		return files{&object, &adapted}
	}
	if err := run(bytes.NewReader(in), &out, open, time.Minute); err != nil {
		t.Fatal(err)
	}
	if comes := request.Object || request.Image == ""; opened != comes {
		t.Errorf("the files are opened: %v, and the request comes with them: %v", opened, comes)
	}
	var answer reader.Answer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if o := answer.Object; o != nil {
		if sum := sha256.Sum256(object.Bytes()); o.Digest != "sha256:"+hex.EncodeToString(sum[:]) || o.Size != int64(object.Len()) {
			t.Errorf("%+v isn't what was written", o)
		}
	}
	return answer
}

// suffixes are the suffixes of tags with content about a manifest.
var suffixes = []string{".sig", ".att", ""}

// copy copies what belongs to one image to another, which is possible without a key.
func (f *testRegistry) copy(from, to string) {
	f.t.Helper()
	subject, err := remote.Head(f.parse(to), f.options()...)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range f.referrers(from) {
		image, err := remote.Image(f.reference("@"+d.Digest.String()), f.options()...)
		if err != nil {
			f.t.Fatal(err)
		}
		about, ok := mutate.Subject(image, *subject).(v1.Image)
		if !ok {
			f.t.Fatal("no image")
		}
		f.pushImage(about)
	}
	for _, suffix := range suffixes[:2] {
		image, err := remote.Image(f.reference(":"+tag(from, suffix)), f.options()...)
		if err != nil {
			continue // not every format has each tag
		}
		if err := remote.Write(f.reference(":"+tag(to, suffix)), image, f.options()...); err != nil {
			f.t.Fatal(err)
		}
	}
}

// strip removes the signatures and attestations of an image.
func (f *testRegistry) strip(image string) {
	f.t.Helper()
	for _, d := range f.referrers(image) {
		if err := remote.Delete(f.reference("@"+d.Digest.String()), f.options()...); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, suffix := range suffixes {
		// Not every format has each tag.
		_ = remote.Delete(f.reference(":"+tag(image, suffix)), f.options()...)
	}
}

func (f *testRegistry) referrers(image string) []v1.Descriptor {
	f.t.Helper()
	digest, ok := f.parse(image).(name.Digest)
	if !ok {
		f.t.Fatalf("%s has no digest", image)
	}
	index, err := remote.Referrers(digest, f.options()...)
	if err != nil {
		f.t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		f.t.Fatal(err)
	}
	return manifest.Manifests
}

func (f *testRegistry) parse(image string) name.Reference {
	f.t.Helper()
	r, err := name.ParseReference(image)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func tag(image, suffix string) string {
	_, digest, _ := strings.Cut(image, "@")
	return strings.Replace(digest, ":", "-", 1) + suffix
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
