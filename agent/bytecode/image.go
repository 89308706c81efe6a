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
	// MaxContent is the most that an image's layers may hold, unpacked or not.
	// Objects with all their debug information have a few megabytes.
	MaxContent = 32 << 20
	// maxDocument is for manifests and configurations; registries have the same limit.
	maxDocument = 4 << 20
	// maxKnown is of how many manifests it is kept whether they are fit.
	maxKnown = 256
)

// Image is what an image's reference means on this node: content, which no
// registry can change any more.
type Image struct {
	// Reference is the image as its user names it.
	Reference string
	// Digest is that of the manifest or index which the reference stands for.
	Digest string
	// Manifest is the digest of the manifest for this machine: Digest itself, unless
	// that is an index.
	Manifest string
}

// Pinned is the reference of the manifest by its digest alone. The daemon of
// v0.6.0 verifies the digests of what it pulls so, and keeps it under that name;
// an image with a tag it keeps under the tag, whatever the digest.
func (i Image) Pinned() string { return i.at(i.Manifest) }

// Resolved is the reference of what the user's stands for, by its digest alone.
func (i Image) Resolved() string { return i.at(i.Digest) }

func (i Image) at(version string) string {
	named, err := parse(i.Reference)
	if err != nil {
		return i.Reference // nothing that was resolved
	}
	return reference.TrimNamed(named).Name() + "@" + version
}

// DigestOf is the digest that a reference names, if it names one. A digest rules
// over a tag beside it.
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

// Source is an image at its registry. It is to be closed.
type Source struct {
	Image

	puller     *puller
	manifest   manifest
	registries *Registries
}

// Open resolves an image's reference at its registry: of an index it takes the
// manifest for this machine. A registry that leaves it waiting is Silent from then
// on.
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

// Close ends the connections to the registry.
func (s *Source) Close() { s.puller.close() }

// Unfit tells why the image must not be handed to the daemon, nil if nothing is
// known against it. The daemon of v0.6.0 unpacks all of a layer in memory, so that
// a few kilobytes can take the node's, and serves nobody meanwhile. Whatever keeps
// the content from being looked at is left to the daemon to tell, but for a
// registry that leaves it waiting: it is Silent from then on. What was found holds
// for the manifest's digest, at whatever registry.
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

// heed takes note of a registry that leaves whoever asks waiting.
func (r *Registries) heed(ctx context.Context, url string, err error) {
	var waited net.Error
	if address, ok := addressOf(url); ok && ctx.Err() == nil && errors.As(err, &waited) && waited.Timeout() {
		r.remember(address, true)
	}
}

// unfitError is what is wrong with an image.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return e.text }

// IsUnfit tells that an error is about the image, not about getting at it.
func IsUnfit(err error) bool {
	unfit := (*unfitError)(nil)
	return errors.As(err, &unfit)
}

var errTooLarge = &unfitError{fmt.Sprintf("the image exceeds the limit of %d MiB", MaxContent>>20)}

// tooLong says of what is longer than is read of it that it is too large.
func tooLong(err error) error {
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return errTooLarge
	}
	return err
}

// look reads the image's content as the daemon would, keeping nothing.
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
		// From elsewhere the daemon reads what was never looked at, and it panics at
		// a layer's digest of another kind.
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

// descriptor is an OCI descriptor, as far as it is needed here.
type descriptor struct {
	Digest   string   `json:"digest"`
	URLs     []string `json:"urls,omitempty"`
	Platform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// manifest is an OCI manifest or an index of them.
type manifest struct {
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

// resolve reads the image's manifest, of an index that for this machine.
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
	// Whoever else reads it has to find the same in it.
	if ambiguous(got.Manifest) || len(m.Manifests) > 0 && len(m.Layers) > 0 {
		return "", m, &unfitError{"the image's manifest is ambiguous"}
	}
	return got.Digest.String(), m, nil
}

// ambiguous tells whether an object in a document of JSON has two members of a
// name, in whatever case: parsers differ in which of them they take.
func ambiguous(document []byte) bool {
	type level struct {
		names map[string]bool // nil for an array
		name  bool            // a name is next
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

// blob hands a blob to a reader and returns how much was read of it. It is asked
// for by its digest alone: the size that the manifest has for it binds nobody.
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
	// What is left is read as well: the daemon would, whatever the rest said.
	_, rest := io.Copy(io.Discard, body)
	if long := (*http.MaxBytesError)(nil); err == nil || errors.As(rest, &long) {
		err = rest
	}
	return body.n, err //nolint:wrapcheck // the readers' words are kept
}

// measure unpacks a layer and takes its files off what is left. A sparse file
// counts in full, as the daemon reads it.
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
			return err //nolint:wrapcheck // what follows the archive has no say
		case err != nil:
			return packed(err)
		}
		if *left -= header.Size; *left < 0 {
			return errTooLarge
		}
	}
}

// packed tells a layer that is packed wrongly from one that can't be read.
func packed(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) {
		return &unfitError{"the image's layer isn't a gzipped tar archive"}
	}
	return fmt.Errorf("read layer: %w", err)
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // a reader passes errors on
}

// recallFit tells what was found of a manifest's content: what is wrong with it, nil
// for nothing.
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
