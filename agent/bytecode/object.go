// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxObject is the limit for an object, in bytes. The object is in memory while it is
// read.
const maxObject = 8 << 20

// Layer is the only layer of an image.
type Layer struct {
	// Digest is the digest of the layer's content.
	Digest string

	puller *puller
}

// Layer returns the layer of an image. It only reads the image's manifest. Callers
// must close the Layer.
func (r *Registries) Layer(ctx context.Context, url string, c Credentials) (*Layer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	p, err := newPuller(url, c, r.Transport)
	if err != nil {
		return nil, err
	}
	_, m, err := p.resolve(ctx)
	if err == nil && (len(m.Layers) != 1 || len(m.Layers[0].URLs) > 0) {
		err = errors.New("the image doesn't have exactly one layer")
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return &Layer{Digest: m.Layers[0].Digest, puller: p}, nil
}

// Object reads the eBPF object. Like the daemon of v0.6.0, it uses the first file of
// the layer.
func (l *Layer) Object(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	l.puller.wire.limit = maxObject
	var object []byte
	_, err := l.puller.blob(ctx, l.Digest, func(body io.Reader) error {
		var err error
		object, err = firstFile(body)
		return err
	})
	return object, err
}

// Close closes the connections to the registry.
func (l *Layer) Close() { l.puller.close() }

func firstFile(layer io.Reader) ([]byte, error) {
	unzipped, err := gzip.NewReader(layer)
	if err != nil {
		return nil, packed(err)
	}
	archive := tar.NewReader(io.LimitReader(unzipped, maxObject))
	if _, err := archive.Next(); err != nil {
		return nil, packed(err)
	}
	object, err := io.ReadAll(archive)
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	return object, nil
}
