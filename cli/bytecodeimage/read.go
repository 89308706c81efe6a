// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/bpfman/bpfman-operator/cli/bytecode"
)

const (
	// maxPlatforms is the maximum number of images that are read from an index.
	maxPlatforms = 32
	// maxHeaders limits the size of an archive's headers, in bytes.
	maxHeaders = 1 << 20
)

// Content describes the content of an image for one or more platforms.
type Content struct {
	// Platforms are the platforms, such as linux/amd64.
	Platforms []string `json:"platforms,omitempty"`
	// File is the name of the object in the image.
	File string `json:"file"`
	// Object describes the object.
	bytecode.Object `json:",inline"`
	// Problems are the reasons why the daemon refuses the image or one of its programs.
	Problems []string `json:"problems,omitempty"`
}

// Read reads an image, or each image of an index. Platforms with the same object share one Content.
func Read(content partial.WithRawManifest) ([]Content, error) {
	images := []v1.Image{}
	switch content := content.(type) {
	case v1.Image:
		images = append(images, content)
	case v1.ImageIndex:
		var err error
		if images, err = imagesOf(content); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%T is neither an image nor an index", content)
	}
	var contents []Content
	seen := map[v1.Hash]int{}
	for _, image := range images {
		c, layer, err := read(image)
		if err != nil {
			return nil, err
		}
		if i, ok := seen[layer]; ok && slices.Equal(contents[i].Problems, c.Problems) {
			contents[i].Platforms = append(contents[i].Platforms, c.Platforms...)
			continue
		}
		seen[layer] = len(contents)
		contents = append(contents, c)
	}
	return contents, nil
}

func imagesOf(index v1.ImageIndex) ([]v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	var images []v1.Image
	for _, d := range manifest.Manifests {
		// BuildKit adds attestations, which have no real platform.
		if !d.MediaType.IsImage() || d.Platform != nil && d.Platform.OS != operatingSystem {
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, fmt.Errorf("read image %s of index: %w", d.Digest, err)
		}
		if got, err := image.Digest(); err != nil || got != d.Digest {
			return nil, fmt.Errorf("read image %s of index: its manifest is %s", d.Digest, got)
		}
		if images = append(images, image); len(images) > maxPlatforms {
			return nil, fmt.Errorf("read index: it has more than %d images", maxPlatforms)
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("read index: it has no image for %s", operatingSystem)
	}
	return images, nil
}

// read reads one image, and returns the digest of its layer.
func read(image v1.Image) (Content, v1.Hash, error) {
	var none v1.Hash
	manifest, err := verifiedManifest(image)
	if err != nil {
		return Content{}, none, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return Content{}, none, fmt.Errorf("read image's configuration: %w", err)
	}
	c := Content{Platforms: []string{config.OS + "/" + config.Architecture}}
	if len(manifest.Layers) != 1 {
		return Content{}, none, fmt.Errorf("the image has %d layers, but a bytecode image has one", len(manifest.Layers))
	}
	layers, err := image.Layers()
	if err != nil {
		return Content{}, none, fmt.Errorf("read image's layer: %w", err)
	}
	name, file, err := fileOf(layers[0], manifest.Layers[0].Digest)
	if err != nil {
		return Content{}, none, err
	}
	object, err := bytecode.Read(file)
	if err != nil {
		return Content{}, none, fmt.Errorf("%s of the image: %w", name, err)
	}
	c.File, c.Object = name, object
	c.Problems = problems(object, config)
	return c, manifest.Layers[0].Digest, nil
}

// verifiedManifest checks the digests of the manifest and the configuration. A layout on disk isn't checked
// otherwise.
func verifiedManifest(image v1.Image) (*v1.Manifest, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read image's manifest: %w", err)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image's configuration: %w", err)
	}
	if got, _, err := v1.SHA256(bytes.NewReader(config)); err != nil || got != manifest.Config.Digest {
		return nil, fmt.Errorf("the image's configuration is %s instead of %s, which its manifest specifies", got, manifest.Config.Digest)
	}
	return manifest, nil
}

// fileOf returns the first file of a layer, as the daemon does.
func fileOf(layer v1.Layer, digest v1.Hash) (name string, content []byte, err error) {
	compressed, err := layer.Compressed()
	if err != nil {
		return "", nil, fmt.Errorf("read image's layer: %w", err)
	}
	defer compressed.Close()
	packed, err := atMost(compressed, bytecode.MaxSize)
	if err != nil {
		return "", nil, fmt.Errorf("read image's layer: %w", err)
	}
	if got, _, err := v1.SHA256(bytes.NewReader(packed)); err != nil || got != digest {
		return "", nil, fmt.Errorf("the image's layer is %s instead of %s, which its manifest specifies", got, digest)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", nil, fmt.Errorf("the image's layer isn't gzipped: %w", err)
	}
	archive := tar.NewReader(io.LimitReader(unzipped, bytecode.MaxSize+maxHeaders))
	header, err := archive.Next()
	switch {
	case errors.Is(err, io.EOF):
		return "", nil, errors.New("the image's layer contains no files")
	case err != nil:
		return "", nil, fmt.Errorf("the image's layer isn't a tar archive: %w", err)
	}
	content, err = atMost(archive, bytecode.MaxSize)
	if err != nil {
		return "", nil, fmt.Errorf("read %q in the image's layer: %w", header.Name, err)
	}
	return header.Name, content, nil
}

// atMost reads everything from r, and fails if it exceeds limit.
func atMost(r io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	return content, err //nolint:wrapcheck // the callers add context
}

// problems compares the labels, which the daemon uses, with the object.
func problems(object bytecode.Object, config *v1.ConfigFile) []string {
	found := object.Problems()
	for _, label := range []string{ProgramsLabel, MapsLabel} {
		var labelled map[string]string
		text, ok := config.Config.Labels[label]
		switch err := json.Unmarshal([]byte(text), &labelled); {
		case !ok:
			found = append(found, "it lacks the label "+label+", so the daemon refuses it")
			continue
		case err != nil:
			found = append(found, "its label "+label+" isn't a JSON object of names and types, so the daemon refuses it")
			continue
		}
		if label == MapsLabel {
			continue
		}
		for _, p := range object.Programs {
			if _, ok := labelled[p.Name]; !ok {
				found = append(found, fmt.Sprintf("its label %s lacks %s, so the daemon refuses that function", label, p.Name))
			}
			delete(labelled, p.Name)
		}
		if len(labelled) > 0 {
			found = append(found, fmt.Sprintf("its label %s has names that the object lacks: %s", label, strings.Join(slices.Sorted(maps.Keys(labelled)), ", ")))
		}
	}
	if order := byteOrders[config.Architecture]; order != "" && order != object.ByteOrder {
		found = append(found, fmt.Sprintf("it is for %s, but the object is %s-endian, so the daemon refuses it", config.Architecture, object.ByteOrder))
	}
	return found
}
