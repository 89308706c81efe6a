// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"archive/tar"
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
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

const (
	// MaxContent is the most that an image's layers may hold, unpacked or not.
	// Objects with all their debug information have a few megabytes.
	MaxContent = 32 << 20
	// maxDocument is for manifests and configurations; registries have the same limit.
	maxDocument = 4 << 20
	// fitness is how long an image is taken to be fit without another look, where
	// the daemon has pulled it meanwhile.
	fitness = 10 * time.Minute
)

// Unfit tells why an image must not be handed to the daemon, nil if nothing is
// known against it. The daemon of v0.6.0 unpacks all of a layer in memory, so
// that a few kilobytes can take the node's, and serves nobody meanwhile. Whatever
// keeps the image from being looked at is left to the daemon to tell, but for a
// registry that leaves it waiting: it is Silent from then on.
//
// Cached tells that the daemon needn't pull what it has: then one look is enough.
func (r *Registries) Unfit(ctx context.Context, url string, c Credentials, cached bool) error {
	address, ok := addressOf(url)
	if !ok || cached && r.wasFit(url) {
		return nil
	}
	err := r.Silent(ctx, url)
	if err == nil {
		err = r.look(ctx, url, c)
	}
	var unfit *unfitError
	var long *http.MaxBytesError
	var waited net.Error
	switch {
	case errors.As(err, &unfit):
		return fmt.Errorf("image %s: %w", url, unfit)
	case errors.As(err, &long):
		return fmt.Errorf("image %s: %w", url, errTooLarge)
	case ctx.Err() == nil && errors.As(err, &waited) && waited.Timeout():
		r.remember(address, true)
	case err == nil:
		r.setFit(url)
	}
	return nil
}

// unfitError is what is wrong with an image.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return e.text }

var errTooLarge = &unfitError{fmt.Sprintf("it holds more than the %d MiB that bytecode may have", MaxContent>>20)}

// look reads the image as the daemon would, keeping nothing.
func (r *Registries) look(ctx context.Context, url string, c Credentials) error {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	p, err := newPuller(url, c, r.Transport)
	if err != nil {
		return err
	}
	defer p.close()
	m, err := p.manifest(ctx)
	if err != nil {
		return err
	}
	if len(m.Layers) == 0 {
		return &unfitError{"it has no layer"}
	}
	if _, err := p.blob(ctx, m.Config.Digest, func(io.Reader) error { return nil }); err != nil {
		return err
	}
	p.wire.limit = MaxContent
	left := int64(MaxContent)
	for _, layer := range m.Layers {
		// From elsewhere the daemon reads what was never looked at, and it panics at
		// a layer's digest of another kind.
		if len(layer.URLs) > 0 || !strings.HasPrefix(layer.Digest, "sha256:") {
			return &unfitError{"its layer isn't the registry's own, by its sha256 digest"}
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

// manifest reads the image's manifest, of an index that for this machine.
func (p *puller) manifest(ctx context.Context) (manifest, error) {
	m, err := p.document(ctx, p.version)
	if err != nil || len(m.Manifests) == 0 {
		return m, err
	}
	for _, d := range m.Manifests {
		if d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			part, err := p.part(d.Digest)
			if err != nil {
				return manifest{}, err
			}
			return p.document(ctx, part)
		}
	}
	return manifest{}, errors.New("no manifest for this machine")
}

func (p *puller) document(ctx context.Context, version name.Reference) (manifest, error) {
	var m manifest
	got, err := p.client.Get(ctx, version)
	if err != nil {
		return m, fmt.Errorf("get manifest: %w", err)
	}
	if err := json.Unmarshal(got.Manifest, &m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
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
			return &unfitError{"its layer holds no file"}
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
		return &unfitError{"its layer is no gzipped tar archive"}
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

func (r *Registries) wasFit(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.fit[url])
}

func (r *Registries) setFit(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for old, until := range r.fit {
		if now.After(until) {
			delete(r.fit, old)
		}
	}
	if r.fit == nil {
		r.fit = map[string]time.Time{}
	}
	r.fit[url] = now.Add(fitness)
}
