// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Document is a manifest or an index.
type Document struct {
	// Layer is the only layer. It is nil for an index.
	Layer *Descriptor
	// Parts are the manifests of an index.
	Parts []Descriptor
}

// Descriptor describes a part of an image. Its digest is a valid sha256 digest.
type Descriptor struct {
	Digest string
	Size   int64
	// Platform is the operating system and the architecture, such as linux/amd64. It is
	// only set in an index.
	Platform string
}

type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls"`
	Data      []byte   `json:"data"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
	Manifests     []descriptor `json:"manifests"`
}

// The media types of OCI and, after them, those of Docker.
var (
	manifestTypes = []string{"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"}
	indexTypes    = []string{"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"}
	layerTypes    = []string{"application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip"}
)

// maxParts is the maximum number of manifests in an index.
const maxParts = 1024

var sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Parse reads a manifest or an index. An error is an UnfitError.
func Parse(content []byte) (*Document, error) {
	var d document
	switch {
	case json.Unmarshal(content, &d) != nil:
		return nil, unfit(problem.ManifestUnusable, "its manifest isn't valid JSON in the format of a manifest")
	case ambiguous(content):
		return nil, unfit(problem.ManifestUnusable, "its manifest has a member twice")
	case d.SchemaVersion != 2:
		return nil, unfit(problem.ManifestUnusable, "its manifest has schema version %d instead of 2", d.SchemaVersion)
	case len(d.Manifests) > 0 && len(d.Layers) > 0:
		return nil, unfit(problem.ManifestUnusable, "its manifest has both layers and manifests")
	case slices.Contains(indexTypes, d.MediaType), d.MediaType == "" && len(d.Manifests) > 0:
		return d.index()
	case slices.Contains(manifestTypes, d.MediaType), d.MediaType == "":
		return d.manifest()
	}
	return nil, unfit(problem.ManifestUnusable, "its manifest has the unexpected media type %s", plain.Quote(d.MediaType))
}

func (d *document) manifest() (*Document, error) {
	switch {
	case len(d.Manifests) > 0:
		return nil, unfit(problem.ManifestUnusable, "its manifest has the media type %s, but refers to manifests", plain.Quote(d.MediaType))
	case len(d.Layers) != 1:
		return nil, unfit(problem.SeveralLayers, "it has %d layers instead of one", len(d.Layers))
	case !sha256Digest.MatchString(d.Config.Digest):
		return nil, unfit(problem.ManifestUnusable, "the digest of its configuration, %s, isn't a sha256 digest", plain.Quote(d.Config.Digest))
	}
	switch layer := d.Layers[0]; {
	case !slices.Contains(layerTypes, layer.MediaType):
		return nil, unfit(problem.LayerMediaType, "its layer has the media type %s instead of %s", plain.Quote(layer.MediaType), layerTypes[0])
	case len(layer.URLs) > 0:
		return nil, unfit(problem.ManifestUnusable, "its layer has URLs outside of its registry")
	case len(layer.Data) > 0:
		return nil, unfit(problem.ManifestUnusable, "its layer is embedded in the manifest")
	case !sha256Digest.MatchString(layer.Digest):
		return nil, unfit(problem.ManifestUnusable, "the digest of its layer, %s, isn't a sha256 digest", plain.Quote(layer.Digest))
	case layer.Size < 0 || layer.Size > reader.MaxObject:
		return nil, unfit(problem.ObjectTooLarge, "its layer has %d bytes; the limit is %d MiB", layer.Size, reader.MaxObject>>20)
	default:
		return &Document{Layer: &Descriptor{Digest: layer.Digest, Size: layer.Size}}, nil
	}
}

func (d *document) index() (*Document, error) {
	if len(d.Layers) > 0 {
		return nil, unfit(problem.ManifestUnusable, "its index has layers")
	}
	if len(d.Manifests) > maxParts {
		return nil, unfit(problem.ManifestUnusable, "its index has %d manifests; the limit is %d", len(d.Manifests), maxParts)
	}
	index := &Document{Parts: []Descriptor{}}
	for _, m := range d.Manifests {
		if !sha256Digest.MatchString(m.Digest) {
			return nil, unfit(problem.ManifestUnusable, "a digest in its index, %s, isn't a sha256 digest", plain.Quote(m.Digest))
		}
		index.Parts = append(index.Parts, Descriptor{Digest: m.Digest, Size: m.Size, Platform: m.Platform.OS + "/" + m.Platform.Architecture})
	}
	return index, nil
}

// For returns the manifest of an index for Linux on an architecture with Go's name.
func (d *Document) For(architecture string) (Descriptor, error) {
	var chosen *Descriptor
	for i, part := range d.Parts {
		switch {
		case part.Platform != "linux/"+architecture:
		case chosen == nil:
			chosen = &d.Parts[i]
		case *chosen != part:
			return Descriptor{}, unfit(problem.ManifestUnusable, "its index has two different manifests for linux/%s", architecture)
		}
	}
	if chosen == nil {
		return Descriptor{}, unfit(problem.NoManifestForPlatform, "it has no manifest for linux/%s", architecture)
	}
	return *chosen, nil
}

// ParsePart reads a manifest of an index.
func ParsePart(part Descriptor, content []byte) (*Document, error) {
	if int64(len(content)) != part.Size {
		return nil, unfit(problem.ImageDamaged, "its index says that manifest %s has %d bytes, but it has %d", part.Digest, part.Size, len(content))
	}
	d, err := Parse(content)
	if err == nil && d.Layer == nil {
		return nil, unfit(problem.ManifestUnusable, "its index contains another index")
	}
	return d, err
}

// ambiguous reports whether an object in a JSON document has two members with the
// same name, ignoring case. Parsers differ in which one they use.
func ambiguous(document []byte) bool {
	type level struct {
		names map[string]bool // nil for an array
		name  bool            // the next token is a name
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	var levels []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		}
		if inner := len(levels) - 1; inner >= 0 && levels[inner].names != nil {
			if text, ok := token.(string); ok && levels[inner].name {
				folded := strings.ToLower(strings.ToUpper(text))
				if levels[inner].names[folded] {
					return true
				}
				levels[inner].names[folded], levels[inner].name = true, false
				continue
			}
			levels[inner].name = true
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}, name: true})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}
