// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/cli/bytecode"
)

// Registries accesses registries, with the credentials from docker login and podman login.
type Registries struct{ transport http.RoundTripper }

// NewRegistries trusts the certificate authorities in caFile, in PEM. If it is empty, it trusts the system's
// authorities.
func NewRegistries(caFile string) (*Registries, error) {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("the default transport is a %T instead of an HTTP transport", remote.DefaultTransport)
	}
	transport := base.Clone()
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("there is no certificate in %s", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Registries{bounded{transport}}, nil
}

func (r *Registries) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(r.transport), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// Push pushes an image or an index, and returns its reference by digest.
func (r *Registries) Push(ctx context.Context, to string, content partial.WithRawManifest) (string, error) {
	ref, err := name.ParseReference(to)
	if err != nil {
		return "", fmt.Errorf("push image: %w", err)
	}
	switch content := content.(type) {
	case v1.Image:
		err = remote.Write(ref, content, r.options(ctx)...)
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, content, r.options(ctx)...)
	default:
		err = fmt.Errorf("%T is neither an image nor an index", content)
	}
	if err != nil {
		return "", fmt.Errorf("push %s: %w", ref, err)
	}
	digest, err := partial.Digest(content)
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", ref, err)
	}
	return ref.Context().Digest(digest.String()).String(), nil
}

// Get returns an image or an index. Its parts are read on demand.
func (r *Registries) Get(ctx context.Context, from string) (partial.WithRawManifest, v1.Hash, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("read image: %w", err)
	}
	found, err := remote.Get(ref, r.options(ctx)...)
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("read image: %w", err)
	}
	var content partial.WithRawManifest
	switch {
	case found.MediaType.IsIndex():
		content, err = found.ImageIndex()
	case found.MediaType.IsImage():
		content, err = found.Image()
	default:
		err = errors.New("it is neither an image nor an index, but " + string(found.MediaType))
	}
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("read image %s: %w", ref, err)
	}
	return content, found.Digest, nil
}

// bounded truncates responses that are larger than any part of a bytecode image.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, bytecode.MaxSize)
	}
	return response, err //nolint:wrapcheck // a transport returns errors unchanged
}
