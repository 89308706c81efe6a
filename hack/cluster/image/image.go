// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package image builds the container images of the cluster and of releases from files of the host, without a
// container engine. The same files result in the same image.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is an entry of an image. Its content is Text, or the content of the host's file
// Source. With Link, it is a symbolic link. Without any of them, it is a directory.
type File struct {
	Path   string
	Mode   fs.FileMode
	Text   []byte
	Source string
	Link   string
}

// Image describes the content and the configuration of an image.
type Image struct {
	Name       string
	Files      []File
	User       string
	Env        []string
	Entrypoint []string
	// Architecture is that of this machine by default.
	Architecture string
	Labels       map[string]string
	// Created is also the time of all files. It is the epoch by default.
	Created time.Time
	// Compressed is for images in registries. Images that are imported on the same machine need no compression.
	Compressed bool
}

// Layer returns the files as a layer.
func (i Image) Layer() (v1.Layer, error) {
	content, err := archive(i.Files, i.created())
	if err != nil {
		return nil, fmt.Errorf("create the layer of %s: %w", i.Name, err)
	}
	if !i.Compressed {
		return static.NewLayer(content, types.OCIUncompressedLayer), nil
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compress the layer of %s: %w", i.Name, err)
	}
	return layer, nil
}

func (i Image) created() time.Time {
	if i.Created.IsZero() {
		return time.Unix(0, 0)
	}
	return i.Created
}

// Build builds the image, with one layer.
func (i Image) Build() (v1.Image, error) {
	layer, err := i.Layer()
	if err != nil {
		return nil, err
	}
	built, err := mutate.AppendLayers(
		mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, fmt.Errorf("add the layer of %s: %w", i.Name, err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", i.Name, err)
	}
	config = config.DeepCopy()
	config.OS = "linux" // containerd ignores an image without a platform
	config.Architecture = cmp.Or(i.Architecture, runtime.GOARCH)
	config.Created = v1.Time{Time: i.created().UTC()}
	config.Config = v1.Config{
		User:       i.User,
		WorkingDir: "/",
		Entrypoint: i.Entrypoint,
		Labels:     i.Labels,
		Env:        append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, i.Env...),
	}
	built, err = mutate.ConfigFile(built, config)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", i.Name, err)
	}
	return built, nil
}

// archive returns a tar archive with the files, sorted, and their directories.
func archive(files []File, modified time.Time) ([]byte, error) {
	all := map[string]File{}
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Path: dir, Mode: 0o755}
			}
		}
		all[file.Path] = file
	}
	sorted := make([]File, 0, len(all))
	for _, file := range all {
		sorted = append(sorted, file)
	}
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Path, b.Path) })

	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range sorted {
		if err := file.write(writer, modified); err != nil {
			return nil, fmt.Errorf("add %s: %w", file.Path, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// write appends the entry to the archive.
func (f File) write(writer *tar.Writer, modified time.Time) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(f.Path, "/"),
		Mode:    int64(f.Mode.Perm()),
		ModTime: modified,
		Format:  tar.FormatPAX,
	}
	if f.Mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		return writer.WriteHeader(header)
	case f.Source != "":
		return f.copySource(writer, header)
	case f.Text != nil:
		header.Typeflag, header.Size = tar.TypeReg, int64(len(f.Text))
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err := writer.Write(f.Text)
		return err
	default:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return writer.WriteHeader(header)
	}
}

func (f File) copySource(writer *tar.Writer, header *tar.Header) error {
	source, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(writer, source)
	return err
}
