// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/bytecode/findings"
	"github.com/bpfman/bpfman-operator/bytecode/image"
	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/bytecode/registry"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// source is an image at its registry.
type source struct {
	*registry.Repository

	digest, manifest v1.Hash
	layer            *image.Descriptor
}

// files are the files of an object: that of the image, and what the daemon loads.
type files struct {
	object  io.ReadWriter
	adapted io.Writer
}

// find answers a request, and writes the object if it is requested.
func find(ctx context.Context, request *reader.Request, to files) reader.Answer {
	if request.Image == "" {
		o, err := adapt(to)
		if err != nil {
			return failed(err, nil)
		}
		return reader.Answer{Object: o}
	}
	var c reader.Credentials
	if request.Credentials != nil {
		c = *request.Credentials
	}
	repository, err := registry.Open(ctx, request.Image, c.Username, c.Password)
	if err != nil {
		return failed(err, &c)
	}
	defer repository.Close()
	s := &source{Repository: repository}
	if err := s.resolve(ctx); err != nil {
		return failed(err, &c)
	}
	a := reader.Answer{Digest: s.digest.String(), Manifest: s.manifest.String()}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		digests := []v1.Hash{s.digest}
		if s.manifest != s.digest {
			digests = append(digests, s.manifest)
		}
		var err error
		a.Signatures, a.Attestations, err = findings.Find(ctx, repository, digests, request)
		return err
	})
	if request.Object && request.Have != a.Manifest {
		group.Go(func() error {
			var err error
			a.Object, err = s.object(ctx, to)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return failed(err, &c)
	}
	return a
}

// resolve reads the image's manifest, and of an index, the manifest for this machine.
func (s *source) resolve(ctx context.Context) error {
	content, digest, err := s.Document(ctx)
	if err != nil {
		return s.told(err, wholeImage)
	}
	s.digest, s.manifest = digest, digest
	document, err := image.Parse(content)
	if err != nil {
		return err
	}
	if document.Layer == nil {
		part, err := document.For(runtime.GOARCH)
		if err != nil {
			return err
		}
		if s.manifest, err = registry.Digest(part.Digest); err != nil {
			return err
		}
		if content, err = s.Part(ctx, s.manifest); err != nil {
			return s.told(err, "manifest for this machine")
		}
		if document, err = image.ParsePart(part, content); err != nil {
			return err
		}
	}
	s.layer = document.Layer
	return nil
}

// object reads the layer, and writes its object.
func (s *source) object(ctx context.Context, to files) (*reader.Object, error) {
	digest, err := registry.Digest(s.layer.Digest)
	if err != nil {
		return nil, err
	}
	// An empty layer isn't a gzip file either.
	layer, err := s.Blob(ctx, digest, max(s.layer.Size, 1))
	if err != nil {
		return nil, s.told(err, layerOfImage)
	}
	if err := s.layer.Check(layer); err != nil {
		return nil, err
	}
	_, content, err := image.Open(layer)
	if err != nil {
		return nil, err
	}
	described, err := describe(content)
	if err != nil {
		return nil, err
	}
	if _, err := to.object.Write(described.Object); err != nil {
		return nil, problem.Errorf(problem.StoreUnusable, "write the object: %w", err)
	}
	return &described.Facts, to.writeAdapted(described)
}

// adapt describes and adapts the object that the caller has.
func adapt(to files) (*reader.Object, error) {
	content, err := io.ReadAll(io.LimitReader(to.object, reader.MaxObject+1))
	if err != nil {
		return nil, problem.Errorf(problem.StoreUnusable, "read the object: %w", err)
	}
	described, err := describe(content)
	if err != nil {
		return nil, err
	}
	return &described.Facts, to.writeAdapted(described)
}

func describe(content []byte) (*object.Description, error) {
	kernel, err := object.OpenKernel()
	if err != nil {
		return nil, err
	}
	described, err := object.Describe(content, kernel)
	if err != nil {
		return nil, &image.UnfitError{Reason: problem.Of(err), Text: "its bytecode can't be used: " + err.Error()}
	}
	return described, nil
}

func (f files) writeAdapted(d *object.Description) error {
	if d.Facts.Adapted.Digest == d.Facts.Digest {
		return nil
	}
	if _, err := f.adapted.Write(d.Adapted); err != nil {
		return problem.Errorf(problem.StoreUnusable, "write the object for the daemon: %w", err)
	}
	return nil
}

// What is read, in messages.
const (
	wholeImage   = "image"
	layerOfImage = "layer of the image"
)

// told adds to an error what was being read.
func (s *source) told(err error, what string) error {
	switch {
	case errors.Is(err, registry.ErrAbsent) && what == wholeImage:
		return &image.UnfitError{Reason: problem.NoSuchImage, Text: fmt.Sprintf("registry %s has no such image", s.Host())}
	case errors.Is(err, registry.ErrAbsent):
		return &image.UnfitError{Reason: problem.ImageIncomplete, Text: fmt.Sprintf("registry %s has no such %s", s.Host(), what)}
	case errors.Is(err, registry.ErrTooLarge) && what == layerOfImage:
		return &image.UnfitError{Reason: problem.ImageDamaged, Text: "its layer is larger than its manifest says"}
	case errors.Is(err, registry.ErrTooLarge):
		return &image.UnfitError{Reason: problem.ManifestUnusable, Text: fmt.Sprintf("its manifest has more than %d MiB", registry.MaxManifest>>20)}
	}
	return err
}

func isUnfit(err error) bool {
	_, ok := errors.AsType[*image.UnfitError](err)
	return ok
}
