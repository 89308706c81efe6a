// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/utils/lru"
)

const (
	// MaxContent is the limit for the layers of an image, in bytes, both compressed and
	// uncompressed. Objects with all their debug information have a few megabytes.
	MaxContent = 32 << 20
	// maxDocument is the limit for manifests and configurations, in bytes. Registries
	// have the same limit.
	maxDocument = 4 << 20
	// maxKnown is the number of manifests whose check results are cached.
	maxKnown = 256
)

// Image is a resolved image reference. It identifies content, which registries can't
// change.
type Image struct {
	// Reference is the reference in the user's object.
	Reference string
	// Digest is the digest of the manifest or index that the reference resolves to.
	Digest string
	// Manifest is the digest of the manifest for this machine. It equals Digest, unless
	// that is the digest of an index.
	Manifest string
}

// Pinned returns the reference of the manifest with the digest only. With such a
// reference, the daemon of v0.6.0 verifies the digests of what it pulls, and stores
// the image under the digest. If a reference has a tag, it stores the image under
// the tag, regardless of the digest.
func (i Image) Pinned() string { return i.at(i.Manifest) }

// Resolved returns the reference of the manifest or index that the user's reference
// resolves to, with the digest only.
func (i Image) Resolved() string { return i.at(i.Digest) }

func (i Image) at(version string) string {
	named, err := parse(i.Reference)
	if err != nil {
		return i.Reference // it was never resolved
	}
	return reference.TrimNamed(named).Name() + "@" + version
}

// DigestOf returns the digest in a reference, if it contains one. If there is a tag
// as well, the digest takes precedence.
func DigestOf(url string) (string, bool) {
	named, err := parse(url)
	if err != nil {
		return "", false
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return "", false
	}
	return digested.Digest().String(), true
}

// Source is an image at its registry. Callers must close it.
type Source struct {
	Image

	puller     *puller
	manifest   manifest
	registries *Registries
}

// Open resolves an image reference at its registry. If it refers to an index, Open
// selects the manifest for this machine. A registry that doesn't respond in time is
// Silent afterwards.
func (r *Registries) Open(ctx context.Context, url string, c Credentials) (*Source, error) {
	if err := r.Silent(ctx, url); err != nil {
		return nil, fmt.Errorf("image %s: %w", url, err)
	}
	p, err := newPuller(url, c, r.Transport)
	if err != nil {
		return nil, err
	}
	looking, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	image, m, err := p.resolve(looking)
	if err != nil {
		p.close()
		r.heed(ctx, url, err)
		return nil, fmt.Errorf("image %s: %w", url, tooLong(err))
	}
	image.Reference = url
	return &Source{Image: image, puller: p, manifest: m, registries: r}, nil
}

// Close closes the connections to the registry.
func (s *Source) Close() { s.puller.close() }

// Unfit returns the reason why the daemon must not get the image, or nil if there is
// no known reason. The daemon of v0.6.0 decompresses whole layers in memory, so that
// a few kilobytes can take all memory of the node, and doesn't serve other calls
// meanwhile. If the content can't be checked, Unfit returns nil, and the daemon
// reports the cause. A registry that doesn't respond in time is Silent afterwards.
// Results are cached for the manifest's digest, for all registries.
func (s *Source) Unfit(ctx context.Context) error {
	unfit, known := s.registries.recallFit(s.Manifest)
	if !known {
		looking, cancel := context.WithTimeout(ctx, lookDeadline)
		defer cancel()
		err := tooLong(s.look(looking))
		if known = err == nil || errors.As(err, &unfit); known {
			s.registries.rememberFit(s.Manifest, unfit)
		} else {
			s.registries.heed(ctx, s.Reference, err)
		}
	}
	if unfit != nil {
		return fmt.Errorf("image %s: %w", s.Reference, unfit)
	}
	return nil
}

// heed remembers the registry as silent if err is a timeout.
func (r *Registries) heed(ctx context.Context, url string, err error) {
	var waited net.Error
	if address, ok := addressOf(url); ok && ctx.Err() == nil && errors.As(err, &waited) && waited.Timeout() {
		r.remember(address, true)
	}
}

// unfitError describes what is wrong with an image.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return e.text }

// IsUnfit reports whether an error is about the image, and not about access to it.
func IsUnfit(err error) bool {
	unfit := (*unfitError)(nil)
	return errors.As(err, &unfit)
}

var errTooLarge = &unfitError{fmt.Sprintf("the image exceeds the limit of %d MiB", MaxContent>>20)}

// tooLong returns errTooLarge if err is about a response that exceeds the limit.
func tooLong(err error) error {
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return errTooLarge
	}
	return err
}

// look reads the content of the image like the daemon, without storing it.
func (s *Source) look(ctx context.Context) error {
	p, m := s.puller, s.manifest
	if len(m.Layers) == 0 {
		return &unfitError{"the image has no layers"}
	}
	p.wire.limit = maxDocument
	if _, err := p.blob(ctx, m.Config.Digest, func(io.Reader) error { return nil }); err != nil {
		return err
	}
	p.wire.limit = MaxContent
	left := int64(MaxContent)
	for _, layer := range m.Layers {
		// The daemon would read layers at other URLs, which aren't checked here, and
		// panics at a layer whose digest isn't sha256.
		if len(layer.URLs) > 0 || !strings.HasPrefix(layer.Digest, "sha256:") {
			return &unfitError{"the image has a layer that is outside of the registry, or whose digest isn't sha256"}
		}
		size, err := p.blob(ctx, layer.Digest, func(body io.Reader) error { return measure(body, &left) })
		if err != nil {
			return err
		}
		if left -= size; left < 0 {
			return errTooLarge
		}
	}
	return nil
}

// descriptor contains the fields of an OCI descriptor that are needed.
type descriptor struct {
	Digest   string   `json:"digest"`
	URLs     []string `json:"urls,omitempty"`
	Platform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// manifest is an OCI manifest or an OCI index.
type manifest struct {
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

// resolve reads the image's manifest. Of an index, it reads the manifest for this
// machine.
func (p *puller) resolve(ctx context.Context) (Image, manifest, error) {
	digest, m, err := p.document(ctx, p.version)
	image := Image{Digest: digest, Manifest: digest}
	if err != nil || len(m.Manifests) == 0 {
		return image, m, err
	}
	for _, d := range m.Manifests {
		if d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			part, err := p.part(d.Digest)
			if err != nil {
				return image, manifest{}, err
			}
			image.Manifest, m, err = p.document(ctx, part)
			if err == nil && len(m.Manifests) > 0 {
				err = &unfitError{"the image index contains another index"}
			}
			return image, m, err
		}
	}
	return image, manifest{}, errors.New("the image has no manifest for this node (linux/" + runtime.GOARCH + ")")
}

func (p *puller) document(ctx context.Context, version name.Reference) (digest string, m manifest, err error) {
	got, err := p.client.Get(ctx, version)
	if err != nil {
		return "", m, fmt.Errorf("get manifest: %w", err)
	}
	if err := json.Unmarshal(got.Manifest, &m); err != nil {
		return "", m, fmt.Errorf("read manifest: %w", err)
	}
	// All parsers must get the same result.
	if ambiguous(got.Manifest) || len(m.Manifests) > 0 && len(m.Layers) > 0 {
		return "", m, &unfitError{"the image's manifest is ambiguous"}
	}
	return got.Digest.String(), m, nil
}

// ambiguous reports whether an object in a JSON document has two members with the
// same name, ignoring case. Parsers differ in which one they use.
func ambiguous(document []byte) bool {
	type level struct {
		names map[string]bool // nil for an array
		name  bool            // the next token is a name
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	var levels []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		}
		if inner := len(levels) - 1; inner >= 0 && levels[inner].names != nil {
			if text, ok := token.(string); ok && levels[inner].name {
				folded := strings.ToLower(strings.ToUpper(text))
				if levels[inner].names[folded] {
					return true
				}
				levels[inner].names[folded], levels[inner].name = true, false
				continue
			}
			levels[inner].name = true
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}, name: true})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}

// blob passes a blob to a reader, and returns the number of bytes that were read. It
// requests the blob by its digest only, because the size in the manifest can be
// wrong.
func (p *puller) blob(ctx context.Context, digest string, read func(io.Reader) error) (int64, error) {
	part, err := p.part(digest)
	if err != nil {
		return 0, err
	}
	layer, err := p.client.Layer(ctx, part)
	if err != nil {
		return 0, fmt.Errorf("get blob: %w", err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return 0, fmt.Errorf("get blob: %w", err)
	}
	defer content.Close()
	body := &counter{r: content}
	err = read(body)
	// Read the rest as well, because the daemon reads it too.
	_, rest := io.Copy(io.Discard, body)
	if long := (*http.MaxBytesError)(nil); err == nil || errors.As(rest, &long) {
		err = rest
	}
	return body.n, err //nolint:wrapcheck // the error of the reader
}

// measure decompresses a layer, and subtracts the sizes of its files from left.
// Sparse files count with their full size, because the daemon reads them in full.
func measure(layer io.Reader, left *int64) error {
	unzipped, err := gzip.NewReader(io.LimitReader(layer, MaxContent+1))
	if err != nil {
		return packed(err)
	}
	bounded := &io.LimitedReader{R: unzipped, N: *left + 1}
	archive := tar.NewReader(bounded)
	for files := 0; ; files++ {
		header, err := archive.Next()
		switch {
		case bounded.N <= 0:
			return errTooLarge
		case errors.Is(err, io.EOF) && files == 0:
			return &unfitError{"the image's layer contains no files"}
		case errors.Is(err, io.EOF):
			if _, err = io.Copy(io.Discard, bounded); bounded.N <= 0 {
				return errTooLarge
			}
			return err //nolint:wrapcheck // data after the archive doesn't matter
		case err != nil:
			return packed(err)
		}
		if *left -= header.Size; *left < 0 {
			return errTooLarge
		}
	}
}

// packed distinguishes a layer with a wrong format from one that can't be read.
func packed(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) {
		return &unfitError{"the image's layer isn't a gzipped tar archive"}
	}
	return fmt.Errorf("read layer: %w", err)
}

// counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // a reader returns errors unchanged
}

// recallFit returns the cached result for a manifest: what is wrong with its
// content, or nil.
func (r *Registries) recallFit(manifest string) (unfit *unfitError, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fit == nil {
		return nil, false
	}
	found, known := r.fit.Get(manifest)
	unfit, _ = found.(*unfitError)
	return unfit, known
}

func (r *Registries) rememberFit(manifest string, unfit *unfitError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fit == nil {
		r.fit = lru.New(maxKnown)
	}
	r.fit.Add(manifest, unfit)
}
