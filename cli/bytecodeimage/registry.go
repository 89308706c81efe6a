// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/bytecode/registry"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// headerDeadline bounds the time until a registry starts to respond. Some take long to store what was pushed.
const headerDeadline = time.Minute

// Registries accesses registries, with the credentials from docker login and podman login, and with the same rules as
// on nodes, such as TLS.
type Registries struct{ authorities *x509.CertPool }

// NewRegistries trusts the certificate authorities in caFile, in PEM. If it is empty, it trusts the system's
// authorities.
func NewRegistries(caFile string) (*Registries, error) {
	if caFile == "" {
		return &Registries{}, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("there is no certificate in %s", caFile)
	}
	return &Registries{pool}, nil
}

func (r *Registries) options(ctx context.Context, of name.Reference, logins *keychain) []remote.Option {
	transport := registry.NewTransport(of.Context().RegistryStr(), registry.Options{RootCAs: r.authorities, Limit: reader.MaxObject, HeaderDeadline: headerDeadline})
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(logins)}
}

// keychain has the credentials of the user's logins. If they can't be read, for example because a credential helper isn't
// installed, it accesses the registry without credentials, which is enough for public images.
type keychain struct{ failed atomic.Pointer[error] }

// Resolve implements authn.Keychain.
func (k *keychain) Resolve(resource authn.Resource) (authn.Authenticator, error) {
	found, err := authn.DefaultKeychain.Resolve(resource)
	if err != nil {
		k.failed.Store(&err)
		return authn.Anonymous, nil //nolint:nilerr // it is kept
	}
	return found, nil
}

// explain adds to an error that credentials couldn't be read.
func (k *keychain) explain(err error) error {
	if failed := k.failed.Load(); failed != nil {
		return fmt.Errorf("%w; the request had no credentials, because they can't be read: %w", err, *failed)
	}
	return err
}

// Push pushes an image or an index, and returns its reference by digest.
func (r *Registries) Push(ctx context.Context, to string, content partial.WithRawManifest) (string, error) {
	ref, err := name.ParseReference(to)
	if err != nil {
		return "", fmt.Errorf("push image: %w", err)
	}
	logins := &keychain{}
	if err := remote.Push(ref, content, r.options(ctx, ref, logins)...); err != nil {
		return "", fmt.Errorf("push %s: %w", ref, logins.explain(err))
	}
	digest, err := partial.Digest(content)
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", ref, err)
	}
	return ref.Context().Digest(digest.String()).String(), nil
}

// Get returns an image or an index. Its parts are read on demand.
func (r *Registries) Get(ctx context.Context, from string) (partial.WithRawManifest, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	logins := &keychain{}
	found, err := remote.Get(ref, r.options(ctx, ref, logins)...)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", logins.explain(err))
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
		return nil, fmt.Errorf("read image %s: %w", ref, err)
	}
	return content, nil
}
