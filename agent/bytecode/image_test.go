// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fakeRegistry serves blobs and manifests by their path below /v2/team/repo/.
type fakeRegistry struct {
	*httptest.Server
	content map[string][]byte
	asked   []string
	// token, if set, is the required bearer token. Clients get it with the user's password.
	token, password string
	basic           bool   // requires the password in each request
	storage         string // the URL of blobs, if they are at another server
	t               *testing.T
}

func newRegistry(t *testing.T) *fakeRegistry {
	t.Helper()
	r := &fakeRegistry{content: map[string][]byte{}, t: t}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // about connections without data
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *fakeRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == "/token" {
		if _, password, _ := q.BasicAuth(); password == r.password && q.URL.Query().Get("scope") == "repository:team/repo:pull" {
			_, _ = io.WriteString(w, `{"token": "`+r.token+`"}`)
		}
		return
	}
	if r.token != "" && q.Header.Get("Authorization") != "Bearer "+r.token {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test"`, r.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if _, password, _ := q.BasicAuth(); r.basic && password != r.password {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path := strings.TrimPrefix(q.URL.Path, "/v2/team/repo/")
	if r.storage != "" && strings.HasPrefix(path, "blobs/") {
		http.Redirect(w, q, r.storage+q.URL.Path, http.StatusTemporaryRedirect)
		return
	}
	r.asked = append(r.asked, path)
	content, ok := r.content[path]
	if !ok {
		http.NotFound(w, q)
		return
	}
	_, _ = w.Write(content)
}

func (r *fakeRegistry) blob(content []byte) descriptor {
	sum := sha256.Sum256(content)
	d := descriptor{Digest: "sha256:" + hex.EncodeToString(sum[:])}
	r.content["blobs/"+d.Digest] = content
	return d
}

func (r *fakeRegistry) manifest(version string, m manifest) descriptor {
	r.t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	d := r.blob(b)
	r.content["manifests/"+version], r.content["manifests/"+d.Digest] = b, b
	return d
}

// image returns the reference of an image with this tag.
func (r *fakeRegistry) image(tag string) string {
	return strings.TrimPrefix(r.URL, "https://") + "/team/repo:" + tag
}

func zipped(t *testing.T, files ...int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i, size := range files {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Mode: 0o644, Size: size}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, endless{}, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// look opens an image and checks its content.
func look(t *testing.T, r *Registries, url string, c Credentials) (Image, error) {
	t.Helper()
	source, err := r.Open(t.Context(), url, c)
	if err != nil {
		return Image{}, err
	}
	defer source.Close()
	return source.Image, source.Unfit(t.Context())
}

func TestUnfitImages(t *testing.T) {
	r := newRegistry(t)
	small, half, bomb := r.blob(zipped(t, 4096)), r.blob(zipped(t, MaxContent/2)), r.blob(zipped(t, MaxContent+1))
	config := r.blob([]byte("{}"))
	here := func(d descriptor) descriptor {
		d.Platform.OS, d.Platform.Architecture = "linux", runtime.GOARCH
		return d
	}
	elsewhere := r.manifest("elsewhere", manifest{Config: config, Layers: []descriptor{small}})
	elsewhere.Platform.OS, elsewhere.Platform.Architecture = "linux", "other"
	const tooLarge, noArchive = "the image exceeds the limit of 32 MiB", "the image's layer isn't a gzipped tar archive"
	const notOwn = "the image has a layer that is outside of the registry, or whose digest isn't sha256"
	for tag, c := range map[string]struct {
		manifest manifest
		want     string
	}{
		"small":         {manifest{Config: config, Layers: []descriptor{small, small}}, ""},
		"no-layer":      {manifest{Config: config}, "the image has no layers"},
		"bomb":          {manifest{Config: config, Layers: []descriptor{bomb}}, tooLarge},
		"second-bomb":   {manifest{Config: config, Layers: []descriptor{small, bomb}}, tooLarge},
		"together":      {manifest{Config: config, Layers: []descriptor{half, half}}, tooLarge},
		"index":         {manifest{Manifests: []descriptor{elsewhere, here(r.manifest("x", manifest{Config: config, Layers: []descriptor{bomb}}))}}, tooLarge},
		"not-here":      {manifest{Manifests: []descriptor{elsewhere}}, "the image has no manifest for this node (linux/" + runtime.GOARCH + ")"},
		"nested":        {manifest{Manifests: []descriptor{here(r.manifest("y", manifest{Manifests: []descriptor{elsewhere}}))}}, "the image index contains another index"},
		"both":          {manifest{Config: config, Layers: []descriptor{small}, Manifests: []descriptor{elsewhere}}, "the image's manifest is ambiguous"},
		"no-tar":        {manifest{Config: config, Layers: []descriptor{r.blob(gzipped(t, bytes.Repeat([]byte("no tar "), 200)))}}, noArchive},
		"no-gzip":       {manifest{Config: config, Layers: []descriptor{r.blob([]byte("neither gzip nor tar"))}}, noArchive},
		"no-file":       {manifest{Config: config, Layers: []descriptor{r.blob(zipped(t))}}, "the image's layer contains no files"},
		"large-config":  {manifest{Config: r.blob(make([]byte, maxDocument+1)), Layers: []descriptor{small}}, tooLarge},
		"trailing":      {manifest{Config: config, Layers: []descriptor{r.blob(append(zipped(t, 1), make([]byte, MaxContent)...))}}, tooLarge},
		"absent-layer":  {manifest{Config: config, Layers: []descriptor{{Digest: "sha256:0"}}}, ""}, // the daemon reports it
		"sha384":        {manifest{Config: config, Layers: []descriptor{{Digest: "sha384:0"}}}, notOwn},
		"sha512":        {manifest{Config: config, Layers: []descriptor{{Digest: "sha512:0"}}}, notOwn},
		"elsewhere":     {manifest{Config: config, Layers: []descriptor{{Digest: small.Digest, URLs: []string{"https://elsewhere.example/layer"}}}}, notOwn},
		"many-archives": {manifest{Config: config, Layers: []descriptor{r.blob(append(zipped(t, 1), zipped(t, MaxContent)...))}}, tooLarge},
	} {
		t.Run(tag, func(t *testing.T) {
			r.manifest(tag, c.manifest)
			registries := Registries{Transport: r.Client().Transport}
			for range 2 { // checked, and then cached
				_, err := look(t, &registries, r.image(tag), Credentials{})
				if want := "image " + r.image(tag) + ": " + c.want; (err == nil) != (c.want == "") || err != nil && err.Error() != want {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A manifest that other parsers could read differently is refused. What is checked and
// verified must be what the daemon loads.
func TestAmbiguousManifests(t *testing.T) {
	r := newRegistry(t)
	small, bomb := r.blob(zipped(t, 1)), r.blob(zipped(t, MaxContent+1))
	config := r.blob([]byte("{}"))
	for name, c := range map[string]struct {
		document  string
		ambiguous bool
	}{
		"plain":       {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[2]s"}],"annotations":{"layers":"","a":"layers"}}`, false},
		"twice":       {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[3]s"}],"layers":[{"digest":"%[2]s"}]}`, true},
		"case":        {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[3]s"}],"LAYERS":[{"digest":"%[2]s"}]}`, true},
		"folded":      {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[3]s"}],"layer\u017f":[{"digest":"%[2]s"}]}`, true},
		"nested":      {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[3]s","Digest":"%[2]s"}]}`, true},
		"in an array": {`{"config":{"digest":"%[1]s"},"layers":[{"digest":"%[2]s"},{"digest":"%[2]s"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r.content["manifests/x"] = fmt.Appendf(nil, c.document, config.Digest, small.Digest, bomb.Digest)
			_, err := look(t, &Registries{Transport: r.Client().Transport}, r.image("x"), Credentials{})
			if (err != nil) != c.ambiguous || err != nil && !strings.Contains(err.Error(), "is ambiguous") {
				t.Errorf("%v, ambiguous: %v", err, c.ambiguous)
			}
		})
	}
}

func FuzzAmbiguous(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,"a",{"a":null}]},"c":[]}`, `{"a":1,"A":2}`, `[[]]`, `{`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var parsed map[string]string
		if json.Unmarshal(document, &parsed) != nil || ambiguous(document) {
			return
		}
		for name := range parsed {
			for other := range parsed {
				if name != other && strings.EqualFold(name, other) {
					t.Errorf("%q and %q in %q", name, other, document)
				}
			}
		}
	})
}

// An image is checked with the credentials that it is pulled with, and with a token if
// the registry requires one. Its content is checked once. Its reference is resolved each
// time.
func TestLookingAtImages(t *testing.T) {
	r := newRegistry(t)
	r.token, r.password = "t0ken", "s3cr3t"
	r.manifest("bomb", manifest{Config: r.blob([]byte("{}")), Layers: []descriptor{r.blob(zipped(t, MaxContent+1))}})
	small := r.manifest("small", manifest{Config: r.blob([]byte("{}")), Layers: []descriptor{r.blob(zipped(t, 1))}})
	registries := Registries{Transport: r.Client().Transport}
	if _, err := look(t, &registries, r.image("bomb"), Credentials{Username: "user", Password: "s3cr3t"}); !IsUnfit(err) {
		t.Errorf("a bomb behind a token: %v", err)
	}
	if _, err := look(t, &registries, r.image("bomb"), Credentials{Username: "user", Password: "wrong"}); err == nil || IsUnfit(err) {
		t.Errorf("a wrong password: %v", err)
	}
	asked := func() int {
		before := len(r.asked)
		image, err := look(t, &registries, r.image("small"), Credentials{Username: "user", Password: "s3cr3t"})
		if want := (Image{Reference: r.image("small"), Digest: small.Digest, Manifest: small.Digest}); err != nil || image != want {
			t.Errorf("%+v, %v, want %+v", image, err, want)
		}
		return len(r.asked) - before
	}
	if first, again := asked(), asked(); first != 3 || again != 1 {
		t.Errorf("%d requests, then %d; want manifest, configuration and layer, then the manifest", first, again)
	}
}

// If a tag moves, an open image doesn't change. The image that is checked and passed on
// is the one that the tag referred to before.
func TestATagThatMoves(t *testing.T) {
	r := newRegistry(t)
	config := r.blob([]byte("{}"))
	good := r.manifest("x", manifest{Config: config, Layers: []descriptor{r.blob(zipped(t, 1))}})
	registries := Registries{Transport: r.Client().Transport}
	source, err := registries.Open(t.Context(), r.image("x"), Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	bomb := r.manifest("x", manifest{Config: config, Layers: []descriptor{r.blob(zipped(t, MaxContent+1))}})
	if err := source.Unfit(t.Context()); err != nil {
		t.Error(err)
	}
	repository := strings.TrimSuffix(r.image("x"), ":x")
	if got, want := source.Pinned(), repository+"@"+good.Digest; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if image, err := look(t, &registries, r.image("x"), Credentials{}); !IsUnfit(err) || image.Digest != bomb.Digest {
		t.Errorf("%+v, %v", image, err)
	}
	// The registry can't serve another manifest for this digest.
	r.content["manifests/"+good.Digest] = r.content["manifests/"+bomb.Digest]
	if _, err := look(t, &registries, source.Pinned(), Credentials{}); err == nil {
		t.Error("another manifest is taken for the one of this digest")
	}
}

// Of an index, the manifest for this machine is passed on. Both digests are known.
func TestIndex(t *testing.T) {
	r := newRegistry(t)
	here := r.manifest("here", manifest{Config: r.blob([]byte("{}")), Layers: []descriptor{r.blob(zipped(t, 1))}})
	part := here
	part.Platform.OS, part.Platform.Architecture = "linux", runtime.GOARCH
	index := r.manifest("index", manifest{Manifests: []descriptor{part}})
	repository := strings.TrimSuffix(r.image("x"), ":x")
	for _, reference := range []string{":index", "@" + index.Digest, ":other@" + index.Digest} {
		image, err := look(t, &Registries{Transport: r.Client().Transport}, repository+reference, Credentials{})
		if err != nil || image.Pinned() != repository+"@"+here.Digest || image.Resolved() != repository+"@"+index.Digest {
			t.Errorf("%s: %+v, %v", reference, image, err)
		}
	}
}

func TestDigestOf(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for url, want := range map[string]string{
		"quay.io/a/b@" + digest: digest, "quay.io/a/b:v1@" + digest: digest, "registry.example:5000/b:v1@" + digest: digest,
		"quay.io/a/b:v1": "", "quay.io/a/b": "", "UPPER CASE": "",
	} {
		if got, ok := DigestOf(url); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", url, got, ok)
		}
	}
}

// An image is checked at the place where the daemon would pull it, with the same access.
func TestImagesAreLookedAtWhereTheyAre(t *testing.T) {
	r := newRegistry(t)
	storage := &fakeRegistry{t: t, content: r.content}
	storage.Server = httptest.NewUnstartedServer(storage)
	storage.Listener.Close()
	var err error
	// A client that protects against attacks with redirects would refuse this address.
	if storage.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0"); err != nil {
		t.Fatal(err)
	}
	storage.Start()
	t.Cleanup(storage.Close)
	r.manifest("bomb", manifest{Config: r.blob([]byte("{}")), Layers: []descriptor{r.blob(zipped(t, MaxContent+1))}})
	r.content["manifests/long"] = make([]byte, maxDocument+1)
	r.password, r.basic = "s3cr3t", true
	for name, c := range map[string]struct{ tag, user, storage string }{
		"basic":         {"bomb", "user", ""},
		"nameless":      {"bomb", "", ""},
		"redirected":    {"bomb", "user", storage.URL},
		"long manifest": {"long", "user", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.storage = c.storage
			registries := Registries{Transport: r.Client().Transport}
			_, err := look(t, &registries, r.image(c.tag), Credentials{Username: c.user, Password: r.password})
			if want := "image " + r.image(c.tag) + ": " + errTooLarge.Error(); err == nil || err.Error() != want {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// An image reference with a digest algorithm that the check doesn't support isn't passed
// to the daemon, which supports it.
func TestImageOfAnotherKindOfDigest(t *testing.T) {
	r := newRegistry(t)
	registries := Registries{Transport: r.Client().Transport}
	image := r.image("x") + "@sha384:" + strings.Repeat("0", 96)
	if _, err := look(t, &registries, image, Credentials{}); !IsUnfit(err) {
		t.Error(err)
	}
}

// Credentials aren't sent without TLS, even to addresses that look local.
func TestNoCredentialsWithoutTLS(t *testing.T) {
	r := &fakeRegistry{t: t, content: map[string][]byte{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	registries := Registries{Transport: r.Client().Transport}
	image := strings.TrimPrefix(r.URL, "http://") + "/team/repo:x"
	if _, err := registries.Open(t.Context(), image, Credentials{Username: "user", Password: "s3cr3t"}); err == nil || len(r.asked) != 0 {
		t.Errorf("%v, asked for %q", err, r.asked)
	}
}

// A registry that accepts connections, but never responds, is silent as well.
func TestARegistryThatNeverAnswers(t *testing.T) {
	never := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	t.Cleanup(never.Close)
	transport := never.Client().Transport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it has this type
	transport.ResponseHeaderTimeout = 100 * time.Millisecond
	registries := Registries{Transport: transport}
	image := strings.TrimPrefix(never.URL, "https://") + "/x:latest"
	if err := registries.Silent(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	if _, err := registries.Open(t.Context(), image, Credentials{}); err == nil {
		t.Fatal("it answers")
	}
	if err := registries.Silent(t.Context(), image); err == nil {
		t.Error("it isn't silent")
	}
}

// If the agent is stopped, the registry isn't remembered as silent.
func TestStoppedLook(t *testing.T) {
	r := newRegistry(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	registries := Registries{Transport: r.Client().Transport}
	_, _ = registries.Open(ctx, r.image("x"), Credentials{})
	if silent := registries.Silent(t.Context(), r.image("x")); silent != nil {
		t.Error(silent)
	}
}

// Any layer is read within the limit.
func FuzzMeasure(f *testing.F) {
	f.Add([]byte{}, int64(10))
	f.Fuzz(func(t *testing.T, content []byte, limit int64) {
		if limit < 0 || limit > MaxContent {
			return
		}
		left := limit
		_ = measure(bytes.NewReader(content), &left)
		if left > limit {
			t.Errorf("more left than %d: %d", limit, left)
		}
	})
}
