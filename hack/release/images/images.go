// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package images builds everything that a release publishes in a registry, without a container engine: images of
// commands, bytecode images, OLM's bundle and catalog, and the Helm chart. They are collected in a directory with the
// OCI layout, so their digests are known before they are published.
package images

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// Release describes what all images of a release have in common.
type Release struct {
	// Registry is the host and path that all names start with, such as ghcr.io/example.
	Registry string
	// Version has no leading v.
	Version string
	// Source is the address of the repository, and Revision the commit.
	Source, Revision string
	Created          time.Time
	Architectures    []string
}

// Name returns the name of an image of the release.
func (r Release) Name(repository string) string {
	return r.Registry + "/" + repository + ":v" + r.Version
}

// annotations describe an image or an index. Registries show them, and link to the source.
func (r Release) annotations() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "source": r.Source, prefix + "licenses": "Apache-2.0", prefix + "vendor": "The bpfman Community",
		prefix + "version": "v" + r.Version, prefix + "revision": r.Revision, prefix + "created": r.Created.UTC().Format(time.RFC3339),
	}
}

// Command builds the image of a command for all architectures. bin contains a directory such as linux-arm64 with the
// binaries for each of them. Licenses returns the licenses and notices of everything in the binaries of a directory.
func (r Release) Command(c image.Command, bin string, licenses func(dir string) (fs.FS, error)) (v1.ImageIndex, error) {
	trusted := roots()
	return r.index(func(architecture string) (image.Image, error) {
		dir := filepath.Join(bin, "linux-"+architecture)
		described, err := c.Image(r.Name(c.Repository), dir, trusted)
		if err != nil {
			return image.Image{}, err
		}
		texts, err := licenses(dir)
		if err != nil {
			return image.Image{}, err
		}
		files, err := filesIn(texts, "/licenses")
		described.Files = append(described.Files, files...)
		described.Labels = r.annotations()
		return described, err
	})
}

// Data builds an image without a program, for all architectures. dirs maps directories in the image to their content.
func (r Release) Data(repository string, dirs map[string]fs.FS, labels map[string]string) (v1.ImageIndex, error) {
	described, err := r.data(repository, dirs, labels)
	if err != nil {
		return nil, err
	}
	return r.index(func(string) (image.Image, error) { return described, nil })
}

// DataOn adds a layer with data, and what it runs, to the images of a base.
func (r Release) DataOn(base v1.ImageIndex, repository string, dirs map[string]fs.FS, labels map[string]string, entrypoint, command []string) (v1.ImageIndex, error) {
	described, err := r.data(repository, dirs, labels)
	if err != nil {
		return nil, err
	}
	described.Created, described.Compressed = r.Created, true
	layer, err := described.Layer()
	if err != nil {
		return nil, err
	}
	return r.indexOf(func(architecture string) (v1.Image, error) {
		built, err := imageFor(base, architecture)
		if err != nil {
			return nil, fmt.Errorf("read the base of %s: %w", repository, err)
		}
		// All layers of an image have media types of the same specification.
		kind, err := built.MediaType()
		if err != nil {
			return nil, fmt.Errorf("read the base of %s: %w", repository, err)
		}
		added := mutate.Addendum{Layer: layer, MediaType: types.OCILayer}
		if kind == types.DockerManifestSchema2 {
			added.MediaType = types.DockerLayer
		}
		if built, err = mutate.Append(built, added); err != nil {
			return nil, fmt.Errorf("add the layer of %s: %w", repository, err)
		}
		config, err := built.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("read the base of %s: %w", repository, err)
		}
		config = config.DeepCopy()
		config.Created = v1.Time{Time: r.Created.UTC()}
		config.Config.Labels, config.Config.Entrypoint, config.Config.Cmd = described.Labels, entrypoint, command
		return mutate.ConfigFile(built, config)
	})
}

// Copy returns the images of another project for the release's architectures.
func (r Release) Copy(other v1.ImageIndex) (v1.ImageIndex, error) {
	return r.collect(func(architecture string) (v1.Image, error) { return imageFor(other, architecture) })
}

func imageFor(index v1.ImageIndex, architecture string) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool {
		return d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == architecture
	})
	if at < 0 {
		return nil, fmt.Errorf("there is no image for %s", architecture)
	}
	return index.Image(manifest.Manifests[at].Digest)
}

func (r Release) data(repository string, dirs map[string]fs.FS, labels map[string]string) (image.Image, error) {
	described := image.Image{Name: r.Name(repository), Labels: r.annotations()}
	maps.Copy(described.Labels, labels)
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		files, err := filesIn(dirs[dir], dir)
		if err != nil {
			return image.Image{}, fmt.Errorf("read the files of %s: %w", repository, err)
		}
		described.Files = append(described.Files, files...)
	}
	return described, nil
}

func (r Release) index(describe func(architecture string) (image.Image, error)) (v1.ImageIndex, error) {
	return r.indexOf(func(architecture string) (v1.Image, error) {
		described, err := describe(architecture)
		if err != nil {
			return nil, err
		}
		described.Architecture, described.Created, described.Compressed = architecture, r.Created, true
		return described.Build()
	})
}

func (r Release) indexOf(build func(architecture string) (v1.Image, error)) (v1.ImageIndex, error) {
	index, err := r.collect(build)
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(index, r.annotations()).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotate an index: it became %T", annotated)
	}
	return annotated, nil
}

// collect returns an index with an image for each of the release's architectures.
func (r Release) collect(build func(architecture string) (v1.Image, error)) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range r.Architectures {
		built, err := build(architecture)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        built,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

// Bytecode builds the bytecode image of an example. Its objects are for little-endian and for big-endian nodes.
func (r Release) Bytecode(objects ...string) (mutate.Appendable, error) {
	files := make([]bytecodeimage.File, 0, len(objects))
	for _, object := range objects {
		content, err := os.ReadFile(object)
		if err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		files = append(files, bytecodeimage.File{Name: filepath.Base(object), Content: content})
	}
	built, err := bytecodeimage.Build(files, r.Created)
	if err != nil {
		return nil, err
	}
	index, ok := built.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("%q have no index", objects)
	}
	annotated, ok := mutate.Annotations(index, r.annotations()).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotate %q: it became %T", objects, annotated)
	}
	return annotated, nil
}

// roots returns the certificate authorities of Mozilla that Go's developers publish, in PEM. Those that are trusted
// only for older certificates are left out.
func roots() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer doesn't fail
		}
	}
	return text.Bytes()
}

// filesIn returns the files of a directory for an image, below target.
func filesIn(dir fs.FS, target string) ([]image.File, error) {
	var files []image.File
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, name)
		if text == nil {
			text = []byte{} // an empty file, not a directory
		}
		files = append(files, image.File{Path: path.Join(target, strings.TrimPrefix(name, "./")), Mode: 0o644, Text: text})
		return err
	})
	return files, err
}
