// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	images "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// hand signs with a key in cosign's formats, without cosign. These tests are about the
// registry.
type hand struct{ key *ecdsa.PrivateKey }

func newHand(t *testing.T) *hand {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &hand{key}
}

func (h *hand) signature(t *testing.T, content []byte) []byte {
	t.Helper()
	digest := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, h.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func (h *hand) authority(t *testing.T) reader.Authority {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&h.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return reader.Authority{Name: "policy/release", Keys: []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}}
}

// another returns the same authority with another name.
func (h *hand) another(t *testing.T) reader.Authority {
	t.Helper()
	a := h.authority(t)
	a.Name = "policy/another"
	return a
}

// simple returns a signature of an image in cosign's format before v3, as a layer.
func (h *hand) simple(t *testing.T, image string) mutate.Addendum {
	t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	content := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"}}`, digest)
	return mutate.Addendum{
		Layer:       static.NewLayer(content, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(h.signature(t, content))},
	}
}

// bundle returns a signature of an image in the format of cosign v3, as a layer.
func (h *hand) bundle(t *testing.T, image string) mutate.Addendum {
	t.Helper()
	_, digest, _ := strings.Cut(image, "@sha256:")
	const kind = "application/vnd.in-toto+json"
	statement := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`, digest)
	signature := h.signature(t, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(statement), statement))
	content, err := json.Marshal(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": "any"}},
		"dsseEnvelope": map[string]any{
			"payload": []byte(statement), "payloadType": kind, "signatures": []map[string]any{{"sig": signature}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Addendum{Layer: static.NewLayer(content, "application/vnd.dev.sigstore.bundle.v0.3+json")}
}

// refer pushes a layer as a referrer of an image.
func (f *testRegistry) refer(image string, layer mutate.Addendum) v1.Descriptor {
	f.t.Helper()
	subject, err := remote.Head(f.parse(image), f.options()...)
	if err != nil {
		f.t.Fatal(err)
	}
	made, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.dev.sigstore.bundle.v0.3+json"), layer)
	if err != nil {
		f.t.Fatal(err)
	}
	about, ok := mutate.Subject(made, *subject).(v1.Image)
	if !ok {
		f.t.Fatal("no image")
	}
	f.pushImage(about)
	digest, err := about.Digest()
	if err != nil {
		f.t.Fatal(err)
	}
	return v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, ArtifactType: "application/vnd.dev.sigstore.bundle.v0.3+json"}
}

// behind returns a registry whose requests go through another handler first.
func behind(t *testing.T, before func(w http.ResponseWriter, r *http.Request, next http.Handler)) *testRegistry {
	t.Helper()
	next := images.New(images.Logger(log.New(io.Discard, "", 0)), images.WithReferrersSupport(true))
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { before(w, r, next) }))
}

// If an attacker adds 10,000 signatures, a signature that existed before is still found.
// The others are read up to a limit, and the answer says so.
func TestTenThousandSignatures(t *testing.T) {
	h, mallory := newHand(t), newHand(t)
	var listed atomic.Pointer[[]v1.Descriptor]
	var asked atomic.Int64
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		asked.Add(1)
		list := listed.Load()
		if list == nil || !strings.Contains(q.URL.Path, "/referrers/") {
			next.ServeHTTP(w, q)
			return
		}
		// In pages of 500, like in some registries.
		var from int
		_, _ = fmt.Sscan(q.URL.Query().Get("from"), &from)
		if to := from + 500; to < len(*list) {
			w.Header().Set("Link", fmt.Sprintf(`<%s?from=%d>; rel="next"`, q.URL.Path, to))
		}
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_ = json.NewEncoder(w).Encode(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: (*list)[from:min(from+500, len(*list))]})
	})
	image := r.push("signed by many")
	right, junk := r.refer(image, h.bundle(t, image)), r.refer(image, mallory.bundle(t, image))
	for name, c := range map[string]struct {
		at    int
		found bool
	}{"first": {0, true}, "last": {9999, true}, "in the middle": {5000, false}} {
		t.Run(name, func(t *testing.T) {
			list := make([]v1.Descriptor, 10000)
			for i := range list {
				list[i] = junk
			}
			list[c.at] = right
			listed.Store(&list)
			asked.Store(0)
			got := ask(t, reader.Request{Image: image, Authorities: []reader.Authority{h.authority(t)}})
			if len(got.Signatures) != 1 || (got.Signatures[0].Signer != "") != c.found {
				t.Fatalf("%+v", got)
			}
			const want = "none of the 1000 signatures that were found is valid: 1000 not made with the authority's keys; only the first 1000 are checked"
			if !c.found && got.Signatures[0].Reason != want {
				t.Errorf("reason %q", got.Signatures[0].Reason)
			}
			if n := asked.Load(); n > 2100 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestTenThousandSignaturesUnderATag(t *testing.T) {
	h, mallory := newHand(t), newHand(t)
	// This one parses all manifests for a list of referrers. With the race detector, that takes longer than a
	// registry has for its answer.
	r := newRegistry(t, false)
	image := r.push("signed by many under a tag")
	for name, c := range map[string]struct {
		at     int
		padded int // additional bytes in each
		want   string
	}{
		"first":                      {0, 0, ""},
		"last":                       {9999, 0, ""},
		"in the middle":              {5000, 0, "none of the 1000 signatures that were found is valid: 1000 not made with the authority's keys; only the first 1000 are checked"},
		"more than a registry keeps": {0, 400, "the only signature that was found is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			r.attachMany(image, h.simple(t, image), mallory.simple(t, image), c.at, strings.Repeat("x", c.padded))
			got := ask(t, reader.Request{Image: image, Authorities: []reader.Authority{h.authority(t)}})
			if len(got.Signatures) != 1 || got.Signatures[0].Reason != c.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// attachMany pushes 10,000 layers under an image's tag. One of them is valid.
func (f *testRegistry) attachMany(image string, right, junk mutate.Addendum, at int, padding string) {
	f.t.Helper()
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	described := func(a mutate.Addendum) v1.Descriptor {
		if err := remote.WriteLayer(f.reference("").Context(), a.Layer, f.options()...); err != nil {
			f.t.Fatal(err)
		}
		digest, err := a.Layer.Digest()
		if err != nil {
			f.t.Fatal(err)
		}
		a.Annotations["padding"] = padding
		return v1.Descriptor{MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Digest: digest, Annotations: a.Annotations}
	}
	one, other := described(right), described(junk)
	manifest.Config = other
	for i := range 10000 {
		if i == at {
			manifest.Layers = append(manifest.Layers, one)
		} else {
			manifest.Layers = append(manifest.Layers, other)
		}
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := remote.Put(f.reference(":"+tag(image, ".sig")), raw(text), f.options()...); err != nil {
		f.t.Fatal(err)
	}
}

// raw is a manifest to push.
type raw []byte

func (r raw) RawManifest() ([]byte, error)        { return r, nil }
func (r raw) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// expiring is a context whose deadline is over when a channel is closed.
type expiring struct {
	context.Context //nolint:containedctx // it is one

	over chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A registry that doesn't respond, or fails, isn't treated as one without signatures.
func TestARegistryThatFails(t *testing.T) {
	h := newHand(t)
	var fails atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if f := fails.Load(); f != nil && (*f)(w, q) {
			return
		}
		next.ServeHTTP(w, q)
	})
	image := r.push("signed")
	r.refer(image, h.bundle(t, image))
	var expire atomic.Pointer[func()] // the time is over when the registry was asked
	never := func(_ http.ResponseWriter, q *http.Request) {
		(*expire.Load())()
		<-q.Context().Done()
	}
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"errors": [{"code": "UNKNOWN", "message": "user:s3cr3t"}]}`)
		}
	}
	for name, c := range map[string]struct {
		path   string
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"never":              {"/v2/", never, "registry HOST doesn't answer in time"},
		"never to referrers": {"/referrers/", never, "registry HOST doesn't answer in time"},
		"never to blobs":     {"/blobs/", never, "doesn't answer in time"},
		"500 to referrers":   {"/referrers/", status(500), "list what refers to DIGEST: registry HOST answers with status 500 Internal Server Error"},
		"500 to the tag":     {".sig", status(500), "registry HOST answers with status 500 Internal Server Error"},
		"403 to referrers":   {"/referrers/", status(403), "list what refers to DIGEST: registry HOST refuses the credentials (status 403 Forbidden)"},
		"429 to blobs":       {"/blobs/", status(429), "registry HOST limits the number of requests (status 429 Too Many Requests)"},
		"an end in the middle": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "900")
			_, _ = io.WriteString(w, "x")
		}, "read sha256:"},
		"another content": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, "read sha256:"},
		"referrers are no index": {"/referrers/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			_, _ = io.WriteString(w, "{")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fail := func(w http.ResponseWriter, q *http.Request) bool {
				if !strings.Contains(q.URL.Path, c.path) {
					return false
				}
				c.answer(w, q)
				return true
			}
			fails.Store(&fail)
			defer fails.Store(nil)
			// Because there is no signature of the other authority, everything has to be
			// read.
			request := reader.Request{
				Image: image, Authorities: []reader.Authority{h.authority(t), newHand(t).another(t)},
				Credentials: &reader.Credentials{Username: "user", Password: "s3cr3t"},
			}
			over := make(chan struct{})
			end := sync.OnceFunc(func() { close(over) })
			expire.Store(&end)
			got := answer(expiring{t.Context(), over}, &request, files{&bytes.Buffer{}, io.Discard}, time.Minute)
			_, digest, _ := strings.Cut(image, "@")
			want := strings.NewReplacer("HOST", r.host(), "DIGEST", digest).Replace(c.want)
			switch {
			case c.want == "" && (got.Error != "" || len(got.Signatures) != 2 || got.Signatures[0].Reason != "the only signature that was found is not readable"):
				t.Errorf("%+v", got)
			case c.want != "" && (!strings.Contains(got.Error, want) || got.Signatures != nil):
				t.Errorf("%+v, want %q", got, want)
			}
			if strings.Contains(fmt.Sprint(got), "s3cr3t") {
				t.Errorf("the password is told: %+v", got)
			}
		})
	}
}

// The answer says when a busy registry accepts requests again.
func TestARegistryThatIsBusy(t *testing.T) {
	var status atomic.Int64
	var header atomic.Pointer[string]
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if code := status.Load(); code != 0 && strings.Contains(q.URL.Path, "/manifests/") {
			w.Header().Set("Retry-After", *header.Load())
			w.WriteHeader(int(code))
			return
		}
		next.ServeHTTP(w, q)
	})
	image := r.push("busy")
	for _, c := range []struct {
		status int64
		header string
		want   int64
	}{
		{http.StatusTooManyRequests, "120", 120},
		{http.StatusServiceUnavailable, "7", 7},
		{http.StatusTooManyRequests, "", 0},
		{http.StatusTooManyRequests, "soon", 0},
		{http.StatusInternalServerError, "120", 0},
		{http.StatusTooManyRequests, "99999999", 3600},
	} {
		header.Store(&c.header)
		status.Store(c.status)
		if a := ask(t, reader.Request{Image: image}); a.Error == "" || a.RetryAfter != c.want {
			t.Errorf("%d, %q: %+v, want %d", c.status, c.header, a, c.want)
		}
	}
	status.Store(0)
	if a := ask(t, reader.Request{Image: image}); a.Error != "" || a.RetryAfter != 0 {
		t.Errorf("%+v", a)
	}
}

// What was found stays valid if something else fails.
func TestAFailureBesideWhatIsFound(t *testing.T) {
	h := newHand(t)
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if strings.HasSuffix(q.URL.Path, ".sig") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, q)
	})
	image := r.push("signed")
	r.refer(image, h.bundle(t, image))
	if got := ask(t, reader.Request{Image: image, Authorities: []reader.Authority{h.authority(t)}}); len(got.Signatures) != 1 || got.Signatures[0].Signer == "" {
		t.Errorf("%+v", got)
	}
}

// Registries require a password, or a token that they issue for one. Neither is sent
// without TLS.
func TestCredentials(t *testing.T) {
	h := newHand(t)
	var locked atomic.Bool
	var host string
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		user, password, _ := q.BasicAuth()
		switch {
		case q.URL.Path == "/token" && user == "user" && password == "s3cr3t":
			_, _ = io.WriteString(w, `{"token": "t0ken"}`)
		case q.URL.Path == "/token":
			w.WriteHeader(http.StatusForbidden)
		case locked.Load() && q.Header.Get("Authorization") != "Bearer t0ken":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="test"`, host))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, q)
		}
	})
	host = r.host()
	image := r.push("signed")
	r.refer(image, h.bundle(t, image))
	locked.Store(true)
	request := reader.Request{Image: image, Authorities: []reader.Authority{h.authority(t)}}
	if got := ask(t, request); got.Error != "registry "+host+" requires credentials (status 403 Forbidden)" || !got.NeedsCredentials {
		t.Errorf("without: %+v", got)
	}
	request.Credentials = &reader.Credentials{Username: "user", Password: "s3cr3t"}
	if got := ask(t, request); len(got.Signatures) != 1 || got.Signatures[0].Signer == "" {
		t.Errorf("with: %+v", got)
	}
	request.Credentials.Password = "wr0ng"
	if got := ask(t, request); got.Error == "" || strings.Contains(got.Error, "wr0ng") {
		t.Errorf("wrong: %+v", got)
	}
}

func TestNoTLS(t *testing.T) {
	asked := false
	plain := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }), ReadHeaderTimeout: time.Second}
	listener := listen(t)
	go func() { _ = plain.Serve(listener) }()
	t.Cleanup(func() { _ = plain.Close() })
	got := ask(t, reader.Request{
		Image: listener.Addr().String() + "/acme/xdp@sha256:" + strings.Repeat("a", 64), Object: true,
		Credentials: &reader.Credentials{Username: "user", Password: "s3cr3t"},
	})
	if got.Error == "" || asked {
		t.Errorf("%+v, asked: %v", got, asked)
	}
}

// The layer must match the manifest. Otherwise, nothing is reported about it.
func TestBytecode(t *testing.T) {
	var tampered atomic.Bool
	r := behind(t, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if tampered.Load() && q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
			_, _ = io.WriteString(w, "another layer")
			return
		}
		next.ServeHTTP(w, q)
	})
	unfit := r.push("no object")
	if got := ask(t, reader.Request{Image: unfit, Object: true}); !got.Unfit || got.Digest != "" || !strings.HasPrefix(got.Error, "its bytecode can't be used: it isn't an ELF file") {
		t.Errorf("no object: %+v", got)
	}
	object := string(compiled(t))
	index, parts := r.pushIndex(object, object+" ")
	_, digest, _ := strings.Cut(index, "@")
	want := parts[0].String()
	got := ask(t, reader.Request{Image: index, Object: true})
	if got.Error != "" || got.Digest != digest || got.Manifest != want || got.Object == nil || len(got.Object.Functions) == 0 || !slices.Contains(got.Object.Helpers, "bpf_map_lookup_elem") {
		t.Errorf("an index: %+v", got)
	}
	if got := ask(t, reader.Request{Image: index, Object: true, Have: want}); got.Error != "" || got.Manifest != want || got.Object != nil {
		t.Errorf("what the caller has: %+v", got)
	}
	if got := ask(t, reader.Request{Image: index}); got.Error != "" || got.Digest != digest || got.Manifest != want || got.Object != nil {
		t.Errorf("only the digests: %+v", got)
	}
	tagged := r.reference(":v1")
	if err := remote.Tag(tagged.Context().Tag("v1"), r.described(index), r.options()...); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, reader.Request{Image: tagged.String(), Object: true}); got.Error != "" || got.Digest != digest || got.Object == nil {
		t.Errorf("a tag: %+v", got)
	}
	for _, version := range []string{"@sha256:" + strings.Repeat("a", 64), ":v2"} {
		if got := ask(t, reader.Request{Image: r.reference(version).String(), Object: true}); got.Error != "registry "+r.host()+" has no such image" || !got.Unfit {
			t.Errorf("absent: %+v", got)
		}
	}
	tampered.Store(true)
	if got := ask(t, reader.Request{Image: index, Object: true}); !got.Unfit && !strings.HasPrefix(got.Error, "registry "+r.host()) || got.Error == "" || got.Object != nil {
		t.Errorf("tampered: %+v", got)
	}
}

func (f *testRegistry) described(image string) *remote.Descriptor {
	f.t.Helper()
	d, err := remote.Get(f.parse(image), f.options()...)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// An invalid request results in an error.
func TestRequests(t *testing.T) {
	for image, want := range map[string]string{
		"UPPER CASE": `image "UPPER CASE": invalid reference format`,
		"quay.io/acme/xdp@sha384:" + strings.Repeat("a", 96): "its digest is neither sha256 nor sha512",
	} {
		if got := ask(t, reader.Request{Image: image}); !strings.Contains(got.Error, want) {
			t.Errorf("%s: %+v", image, got)
		}
	}
	var out strings.Builder
	none := func() files { return files{} }
	if err := run(strings.NewReader(`{"image": 1}`), &out, none, time.Second); err == nil || out.Len() != 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := run(io.LimitReader(endless{}, reader.MaxRequest+2), &out, none, time.Second); err == nil || out.Len() != 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}
