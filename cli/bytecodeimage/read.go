// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/bpfman/bpfman-operator/bytecode/image"
	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// maxPlatforms is the maximum number of images that are read from an index.
const maxPlatforms = 32

// Content describes the content of an image for one or more platforms.
type Content struct {
	// Platforms are the platforms, such as linux/amd64.
	Platforms []string `json:"platforms,omitempty"`
	// File is the name of the object in the image.
	File string `json:"file"`
	// Object describes the object.
	object.Object `json:",inline"`
	// Problems are the reasons why bpfman refuses the image or one of its programs.
	Problems []string `json:"problems,omitempty"`
	// Remarks are what is missing in the object, although bpfman may load it.
	Remarks []string `json:"remarks,omitempty"`
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
	seen := map[string]int{}
	for _, img := range images {
		c, layer, err := read(img)
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
	content, err := index.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	document, err := image.Parse(content)
	if err != nil {
		return nil, err
	}
	var images []v1.Image
	for _, d := range manifest.Manifests {
		// BuildKit adds attestations, which have no real platform.
		if !d.MediaType.IsImage() || d.Platform != nil && d.Platform.OS != operatingSystem {
			continue
		}
		img, err := imageOf(index, document, &d)
		if err != nil {
			return nil, err
		}
		if images = append(images, img); len(images) > maxPlatforms {
			return nil, fmt.Errorf("read index: it has more than %d images", maxPlatforms)
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("read index: it has no image for %s", operatingSystem)
	}
	return images, nil
}

// imageOf returns an image of an index, which must be the only one for its platform.
func imageOf(index v1.ImageIndex, document *image.Document, d *v1.Descriptor) (v1.Image, error) {
	if d.Platform != nil {
		if _, err := document.For(d.Platform.Architecture); err != nil {
			return nil, err
		}
	}
	img, err := index.Image(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("read image %s of index: %w", d.Digest, err)
	}
	if got, err := img.Digest(); err != nil || got != d.Digest {
		return nil, fmt.Errorf("read image %s of index: its manifest is %s", d.Digest, got)
	}
	return img, nil
}

// read reads one image, and returns the digest of its layer.
func read(img v1.Image) (Content, string, error) {
	document, err := verifiedManifest(img)
	if err != nil {
		return Content{}, "", err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return Content{}, "", fmt.Errorf("read image's configuration: %w", err)
	}
	c := Content{Platforms: []string{config.OS + "/" + config.Architecture}}
	name, file, err := fileOf(img, document.Layer)
	if err != nil {
		return Content{}, "", err
	}
	content, err := object.Read(file)
	if err != nil {
		return Content{}, "", fmt.Errorf("its bytecode can't be used: %w", err)
	}
	c.File, c.Object, c.Problems, c.Remarks = name, *content, content.Problems(), content.Remarks()
	if order := byteOrders[config.Architecture]; order != "" && order != content.ByteOrder {
		c.Problems = append(c.Problems, fmt.Sprintf("it is for %s, but the object is %s-endian, so bpfman refuses it", config.Architecture, content.ByteOrder))
	}
	return c, document.Layer.Digest, nil
}

// verifiedManifest reads the manifest of an image, and checks the digest of the configuration. A layout on disk isn't
// checked otherwise.
func verifiedManifest(img v1.Image) (*image.Document, error) {
	content, err := img.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("read image's manifest: %w", err)
	}
	document, err := image.Parse(content)
	if err != nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read image's manifest: %w", err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image's configuration: %w", err)
	}
	if got, _, err := v1.SHA256(bytes.NewReader(config)); err != nil || got != manifest.Config.Digest {
		return nil, fmt.Errorf("its configuration is %s instead of %s, which its manifest specifies", got, manifest.Config.Digest)
	}
	return document, nil
}

// fileOf returns the only file of the layer.
func fileOf(img v1.Image, described *image.Descriptor) (name string, content []byte, err error) {
	layers, err := img.Layers()
	if err != nil {
		return "", nil, fmt.Errorf("read image's layer: %w", err)
	}
	compressed, err := layers[0].Compressed()
	if err != nil {
		return "", nil, fmt.Errorf("read image's layer: %w", err)
	}
	defer compressed.Close()
	packed, err := atMost(compressed, reader.MaxObject)
	if err != nil {
		return "", nil, fmt.Errorf("read image's layer: %w", err)
	}
	if got, _, err := v1.SHA256(bytes.NewReader(packed)); err != nil || got.String() != described.Digest {
		return "", nil, fmt.Errorf("its layer is %s instead of %s, which its manifest specifies", got, described.Digest)
	}
	if err := described.Check(packed); err != nil {
		return "", nil, err
	}
	return image.Open(packed)
}

// atMost reads everything from r, and fails if it exceeds limit.
func atMost(r io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	return content, err
}
