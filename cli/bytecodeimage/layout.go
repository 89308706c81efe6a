// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Limits and modes for the archive of a layout.
const (
	maxArchive = 8 * reader.MaxObject
	dirMode    = 0o755
	fileMode   = 0o644
)

// WriteLayout writes an image or an index in the OCI layout, either to a directory, or to a tar file, which other
// tools call oci-archive. The same image results in the same archive.
func WriteLayout(path string, content partial.WithRawManifest, created time.Time) error {
	if path == "" {
		return errors.New("write image: the path is empty: specify an archive or a directory with --output")
	}
	if info, err := os.Stat(path); os.IsPathSeparator(path[len(path)-1]) || err == nil && info.IsDir() {
		return writeDirectory(path, content)
	}
	dir, err := os.MkdirTemp("", "bytecode-image-")
	if err != nil {
		return fmt.Errorf("create a directory for the layout: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeDirectory(dir, content); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	err = archive(file, os.DirFS(dir), created)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	return nil
}

func writeDirectory(path string, content partial.WithRawManifest) error {
	add, ok := content.(mutate.Appendable)
	if !ok {
		return fmt.Errorf("%T is neither an image nor an index", content)
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	if _, err := layout.Write(path, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: add})); err != nil {
		return fmt.Errorf("write image to %s: %w", path, err)
	}
	return nil
}

// archive writes the files of a directory to a tar archive. All entries have the same metadata, so the archive is
// reproducible.
func archive(w io.Writer, dir fs.FS, modified time.Time) error {
	out := tar.NewWriter(w)
	err := fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, path)
		if err == nil {
			err = add(out, path, content, modified)
		}
		return err
	})
	return errors.Join(err, out.Close())
}

// add adds a file to a tar archive.
func add(to *tar.Writer, name string, content []byte, modified time.Time) error {
	err := to.WriteHeader(&tar.Header{Name: name, Mode: fileMode, Size: int64(len(content)), ModTime: modified})
	if err == nil {
		_, err = to.Write(content)
	}
	return err
}

// OpenLayout reads the only image or index of an OCI layout, which is a directory or an archive of one. The
// caller must call closeIt, even after an error.
func OpenLayout(path string) (content partial.WithRawManifest, closeIt func(), err error) {
	closeIt = func() {}
	dir := path
	if info, err := os.Stat(path); err != nil {
		return nil, closeIt, fmt.Errorf("read image: %w", err)
	} else if !info.IsDir() {
		if dir, err = os.MkdirTemp("", "bytecode-image-"); err != nil {
			return nil, closeIt, fmt.Errorf("create a directory for the layout: %w", err)
		}
		closeIt = func() { _ = os.RemoveAll(dir) }
		if err := extract(path, dir); err != nil {
			return nil, closeIt, fmt.Errorf("read image %s: %w", path, err)
		}
	}
	content, err = only(dir)
	if err != nil {
		return nil, closeIt, fmt.Errorf("read image %s: %w", path, err)
	}
	return content, closeIt, nil
}

// inLayout matches the names of a layout's files. Other entries of an archive are refused.
var inLayout = regexp.MustCompile(`^(\./)?(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

func extract(from, dir string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	in := tar.NewReader(io.LimitReader(file, maxArchive))
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it isn't an OCI layout: %w", err)
		case header.Typeflag != tar.TypeReg || !inLayout.MatchString(header.Name):
			continue
		}
		content, err := atMost(in, reader.MaxObject)
		if err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		to := filepath.Join(dir, filepath.FromSlash(header.Name)) // checked above
		if err := os.MkdirAll(filepath.Dir(to), dirMode); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, fileMode); err != nil {
			return err
		}
	}
}

// only returns the only image or index of a layout.
func only(dir string) (partial.WithRawManifest, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("it isn't an OCI layout: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("it isn't an OCI layout: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("the OCI layout has %d images instead of one", len(manifest.Manifests))
	}
	d := manifest.Manifests[0]
	var content partial.WithRawManifest
	switch {
	case d.MediaType.IsIndex():
		content, err = index.ImageIndex(d.Digest)
	case d.MediaType.IsImage():
		content, err = index.Image(d.Digest)
	default:
		err = fmt.Errorf("its media type %q isn't that of an image", d.MediaType)
	}
	if err != nil {
		return nil, err
	}
	if got, err := partial.Digest(content); err != nil || got != d.Digest {
		return nil, fmt.Errorf("its manifest is %s instead of %s", got, d.Digest)
	}
	return content, nil
}
