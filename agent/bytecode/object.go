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

// maxObject is the most that is read of an object, in bytes: it is kept in memory
// for a moment.
const maxObject = 8 << 20

// Object reads the eBPF object of an image, which is the first file of its layer,
// as the daemon of v0.6.0 takes it.
func (r *Registries) Object(ctx context.Context, url string, c Credentials) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	p, err := newPuller(url, c, r.Transport)
	if err != nil {
		return nil, err
	}
	defer p.close()
	m, err := p.manifest(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != 1 || len(m.Layers[0].URLs) > 0 {
		return nil, errors.New("it isn't of one layer")
	}
	p.wire.limit = maxObject
	var object []byte
	_, err = p.blob(ctx, m.Layers[0].Digest, func(body io.Reader) error {
		object, err = firstFile(body)
		return err
	})
	return object, err
}

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
