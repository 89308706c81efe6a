// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package image reads the manifest and the layer of a bytecode image. It accepts one
// strict form, in which no two readers can see different content: a layer with one
// gzipped tar archive with one regular file.
package image

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// maxDirectories is the maximum number of directories in a layer.
	maxDirectories = 256
	// maxPadding is the maximum size of the zeros at the end of an archive, in bytes.
	// Archivers fill up a record, which is 10 KiB by default.
	maxPadding = 1 << 20
)

// UnfitError describes why an image doesn't have the form of a bytecode image. The text
// continues a sentence about the image.
type UnfitError struct {
	Reason problem.Reason
	Text   string
}

func (e *UnfitError) Error() string { return e.Text }

// Problem implements the method of errors that name their problem.
func (e *UnfitError) Problem() problem.Reason { return e.Reason }

func unfit(reason problem.Reason, format string, arguments ...any) *UnfitError {
	return &UnfitError{reason, fmt.Sprintf(format, arguments...)}
}

// Check reports whether a layer is too large, or has another size than its manifest
// says. The caller has verified its digest.
func (d *Descriptor) Check(layer []byte) error {
	if int64(len(layer)) != d.Size {
		return unfit(problem.ImageDamaged, "its manifest says that the layer has %d bytes, but it has %d", d.Size, len(layer))
	}
	return nil
}

// Open returns the only file of a layer with its name. An error is an UnfitError.
func Open(layer []byte) (name string, object []byte, err error) {
	if len(layer) > reader.MaxObject {
		return "", nil, unfit(problem.ObjectTooLarge, "its layer has more than %d MiB", reader.MaxObject>>20)
	}
	packed := bytes.NewReader(layer)
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return "", nil, unfit(problem.LayerMediaType, "its layer isn't in gzip's format")
	}
	unzipped.Multistream(false)
	a := &archive{in: unzipped}
	name, object, err = a.only()
	var about *UnfitError
	switch {
	case errors.As(err, &about):
		return "", nil, about
	case errors.Is(err, gzip.ErrChecksum):
		return "", nil, unfit(problem.LayerMalformed, "its layer's gzip checksum or size is wrong")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "", nil, unfit(problem.LayerMalformed, "its layer ends too early")
	case err != nil:
		return "", nil, unfit(problem.LayerMalformed, "its layer can't be decompressed")
	case packed.Len() > 0:
		return "", nil, unfit(problem.LayerMalformed, "its layer has data after the gzip stream")
	}
	return name, object, nil
}

// archive reads a tar archive.
type archive struct {
	in          io.Reader
	directories int
}

// only reads the archive to its end, and returns its only regular file.
func (a *archive) only() (name string, object []byte, err error) {
	found := false
	for {
		e, err := a.next()
		switch {
		case err != nil:
			return "", nil, err
		case e == nil && !found:
			return "", nil, unfit(problem.SeveralFiles, "its layer contains no file")
		case e == nil:
			return name, object, a.padding()
		case found && e.directory:
			return "", nil, unfit(problem.SeveralFiles, "its layer contains a directory after its file")
		case found:
			return "", nil, unfit(problem.SeveralFiles, "its layer contains more than one file")
		case e.directory:
			if a.directories++; a.directories > maxDirectories {
				return "", nil, unfit(problem.SeveralFiles, "its layer contains more than %d directories", maxDirectories)
			}
			continue
		}
		found, name = true, e.name
		if e.size > reader.MaxObject {
			return "", nil, unfit(problem.ObjectTooLarge, "its file has more than %d MiB", reader.MaxObject>>20)
		}
		if object, err = a.content(e.size); err != nil {
			return "", nil, err
		}
	}
}

// content reads the content of an entry and its padding. It only allocates what the
// archive has, not what a header claims.
func (a *archive) content(size int64) ([]byte, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, a.in, size); err != nil {
		return nil, err
	}
	rest := make([]byte, -size&(blockSize-1))
	if _, err := io.ReadFull(a.in, rest); err != nil {
		return nil, err
	}
	if !zero(rest) {
		return nil, unfit(problem.LayerMalformed, "its layer has data in the padding of a file")
	}
	return b.Bytes(), nil
}

// padding reads what is after the first block of zeros.
func (a *archive) padding() error {
	left := int64(maxPadding)
	for blocks := 0; ; blocks++ {
		b := make([]byte, blockSize)
		n, err := io.ReadFull(a.in, b)
		left -= int64(n)
		switch {
		case !zero(b[:n]):
			return unfit(problem.LayerMalformed, "its layer has data after the end of the archive")
		case left < 0:
			return unfit(problem.LayerMalformed, "its layer ends with more than %d MiB of zeros", maxPadding>>20)
		case errors.Is(err, io.EOF) && blocks > 0:
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n > 0:
			return unfit(problem.LayerMalformed, "its layer's archive doesn't end with two blocks of zeros")
		case err != nil:
			return err
		}
	}
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
