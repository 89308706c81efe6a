// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package registry reads an image from a registry, and what belongs to it: manifests,
// blobs, and referrers of a manifest.
package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// maxPages is the maximum number of pages of referrers to read.
const maxPages = 100

// ErrAbsent means that the registry doesn't have the requested content.
var ErrAbsent = errors.New("the registry doesn't have it")

// ErrTooLarge means that the content exceeds a size limit. ErrMalformed means that the
// content isn't what was requested.
var (
	ErrTooLarge  = errors.New("it exceeds the size limit")
	ErrMalformed = errors.New("it has unexpected content")
)

// Repository is one repository of a registry.
type Repository struct {
	name    name.Repository
	version name.Reference
	wire    *Transport
	client  *http.Client
	puller  *remote.Puller
	// authenticated means that there are credentials.
	authenticated bool
}

// Open logs in to the registry of an image. The caller must close the repository.
func Open(ctx context.Context, image, username, password string) (*Repository, error) {
	r, err := parse(image)
	if err != nil {
		return nil, err
	}
	r.wire = NewTransport(r.name.RegistryStr(), Options{})
	r.authenticated = username != "" || password != ""
	auth := authn.Anonymous
	if r.authenticated {
		// The library would ignore the credentials if the user name or the password is
		// empty.
		auth = authn.FromConfig(authn.AuthConfig{Auth: base64.StdEncoding.EncodeToString([]byte(username + ":" + password))})
	}
	authenticated, err := transport.NewWithContext(ctx, r.name.Registry, auth, lenient{r.wire}, []string{r.name.Scope(transport.PullScope)})
	if err != nil {
		return nil, r.told(err)
	}
	r.client = &http.Client{Transport: authenticated}
	if r.puller, err = remote.NewPuller(remote.WithTransport(authenticated)); err != nil {
		return nil, fmt.Errorf("registry %s: %w", r.name.RegistryStr(), err)
	}
	return r, nil
}

// lenient is a transport that accepts any response at the API's root, like the daemon.
type lenient struct{ *Transport }

func (l lenient) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.Transport.RoundTrip(request)
	if err == nil && request.URL.Path == "/v2/" && response.StatusCode != http.StatusUnauthorized {
		response.StatusCode = http.StatusOK
	}
	return response, err
}

func parse(image string) (*Repository, error) {
	named, err := reader.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", plain.Quote(image), err)
	}
	host, repository, _ := strings.Cut(named.Repository, "/")
	if host == "docker.io" {
		host = "registry-1.docker.io"
	}
	// With a port, the library doesn't treat a name without a dot as a part of the path.
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	registry, err := name.NewRegistry(host)
	if err != nil {
		return nil, problem.Errorf(problem.InvalidReference, "image %s: %w", plain.Quote(image), err)
	}
	r := &Repository{name: registry.Repo(repository)}
	if named.Digest == "" {
		r.version = r.name.Tag(named.Tag)
		return r, nil
	}
	digest, err := Digest(named.Digest)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", plain.Quote(image), err)
	}
	r.version = r.name.Digest(digest.String())
	return r, nil
}

// Digest parses a digest with a supported algorithm.
func Digest(digest string) (v1.Hash, error) {
	h, err := v1.NewHash(digest)
	if err != nil {
		return v1.Hash{}, problem.Errorf(problem.InvalidReference, "its digest is neither sha256 nor sha512")
	}
	return h, nil
}

// Close closes the connections to the registry.
func (r *Repository) Close() { r.wire.CloseIdleConnections() }

// Host returns the host of the registry, with its port.
func (r *Repository) Host() string { return r.name.RegistryStr() }

// Document reads the manifest or index of the image's reference, and returns its digest.
func (r *Repository) Document(ctx context.Context) ([]byte, v1.Hash, error) {
	return r.document(ctx, r.version)
}

// Part reads the manifest with a digest.
func (r *Repository) Part(ctx context.Context, digest v1.Hash) ([]byte, error) {
	content, _, err := r.document(ctx, r.name.Digest(digest.String()))
	return content, err
}

func (r *Repository) document(ctx context.Context, version name.Reference) ([]byte, v1.Hash, error) {
	got, err := r.puller.Get(ctx, version)
	if err != nil {
		return nil, v1.Hash{}, r.told(err)
	}
	return got.Manifest, got.Digest, nil
}

// Manifest reads the manifest or index with a digest.
func (r *Repository) Manifest(ctx context.Context, digest v1.Hash) (*v1.Manifest, error) {
	return r.manifest(ctx, r.name.Digest(digest.String()))
}

// Tagged reads the manifest of a tag.
func (r *Repository) Tagged(ctx context.Context, tag string) (*v1.Manifest, error) {
	return r.manifest(ctx, r.name.Tag(tag))
}

func (r *Repository) manifest(ctx context.Context, version name.Reference) (*v1.Manifest, error) {
	content, _, err := r.document(ctx, version)
	if err != nil {
		return nil, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, fmt.Errorf("%w: %s isn't a manifest", ErrMalformed, version.Identifier())
	}
	return &m, nil
}

// Blob reads a blob of at most limit bytes, and verifies its digest.
func (r *Repository) Blob(ctx context.Context, digest v1.Hash, limit int64) ([]byte, error) {
	layer, err := r.puller.Layer(within(ctx, limit), r.name.Digest(digest.String()))
	if err != nil {
		return nil, r.told(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, r.told(err)
	}
	defer content.Close()
	b, err := io.ReadAll(content)
	if err != nil {
		return nil, r.told(err)
	}
	return b, nil
}

// Referrers lists the referrers of a manifest. It uses the referrers API, or the tag
// that replaces it if the registry doesn't support the API. more means that there are
// more than were read.
func (r *Repository) Referrers(ctx context.Context, digest v1.Hash) (referrers []v1.Descriptor, more bool, err error) {
	next := &url.URL{Scheme: "https", Host: r.name.RegistryStr(), Path: "/v2/" + r.name.RepositoryStr() + "/referrers/" + digest.String()}
	for page := range maxPages {
		index, following, err := r.page(ctx, next)
		if errors.Is(err, ErrAbsent) && page == 0 {
			return r.tagOf(ctx, digest)
		}
		if err != nil {
			return nil, false, err
		}
		referrers = append(referrers, index.Manifests...)
		if following == nil {
			return referrers, false, nil
		}
		next = following
	}
	return referrers, true, nil
}

// tagOf reads the index under the referrers tag, which clients maintain.
func (r *Repository) tagOf(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, bool, error) {
	got, err := r.puller.Get(ctx, r.name.Tag(Tag(digest, "")))
	switch err = r.told(err); {
	case errors.Is(err, ErrAbsent):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(got.Manifest, &index); err != nil {
		return nil, false, fmt.Errorf("%w: the referrers tag has no index", ErrMalformed)
	}
	return index.Manifests, false, nil
}

// Tag returns the tag for content that belongs to a manifest: its referrers without a
// suffix, or cosign's older formats with one, such as .sig.
func Tag(digest v1.Hash, suffix string) string { return digest.Algorithm + "-" + digest.Hex + suffix }

func (r *Repository) page(ctx context.Context, at *url.URL) (*v1.IndexManifest, *url.URL, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("list referrers: %w", err)
	}
	request.Header.Set("Accept", string(types.OCIImageIndex))
	response, err := r.client.Do(request)
	if err != nil {
		return nil, nil, r.told(err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusBadRequest, http.StatusNotAcceptable, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil, nil, ErrAbsent
	default:
		return nil, nil, r.told(&transport.Error{StatusCode: response.StatusCode})
	}
	// Something other than the registry answers for unknown paths.
	if kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";"); kind != string(types.OCIImageIndex) {
		return nil, nil, ErrAbsent
	}
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, r.told(err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, nil, fmt.Errorf("%w: the list of referrers isn't an index", ErrMalformed)
	}
	return &index, following(at, response.Header), nil
}

// following returns the address of the next page on the same registry, as the
// distribution specification requires (RFC 8288).
func following(at *url.URL, header http.Header) *url.URL {
	rest := strings.Join(header.Values("Link"), ",")
	for {
		_, link, found := strings.Cut(rest, "<")
		target, after, ended := strings.Cut(link, ">")
		if !found || !ended {
			return nil
		}
		rest = after
		parameters, _, _ := strings.Cut(after, "<") // those behind it are the next link's
		if !strings.Contains(parameters, `rel="next"`) && !strings.Contains(parameters, "rel=next") {
			continue
		}
		next, err := at.Parse(target)
		if err == nil && next.Host == at.Host && next.Scheme == at.Scheme {
			return next
		}
	}
}
