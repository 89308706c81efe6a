// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// filePrefix is the prefix of a file's name. A repository can't have it: after a host
// with the name file, the colon precedes a port.
const filePrefix = "file:/"

// Image identifies bytecode by the name that rules match.
type Image struct {
	// Repository is the full name of the repository, such as quay.io/acme/xdp-pass or
	// docker.io/library/busybox, with the host in lower case and without the port 443.
	// For a file on the node, it is file: and the path.
	Repository string
	// Tag is the tag of the reference, or "latest" if the reference has neither tag nor
	// digest. If the reference has a digest, Tag is empty, because the tag has no effect
	// then.
	Tag string
	// Digest is the digest of the reference, such as sha256:… .
	Digest string
}

// ParseImage returns the image or file that a selector refers to. It returns an error if
// the bytecode can't be loaded from anywhere.
func ParseImage(b v1alpha1.BytecodeSelector) (Image, error) {
	switch {
	case b.Image != nil && b.Image.Url == "":
		return Image{}, errors.New("bytecode.image.url is empty")
	case b.Image != nil:
		return parseReference(b.Image.Url)
	case b.Path != nil && *b.Path == "":
		return Image{}, errors.New("bytecode.path is empty")
	case b.Path != nil && !path.IsAbs(*b.Path):
		return Image{}, fmt.Errorf("bytecode.path %q isn't absolute", *b.Path)
	case b.Path != nil:
		return Image{Repository: filePrefix + path.Clean(*b.Path)[1:]}, nil
	}
	return Image{}, errors.New("bytecode has neither an image nor a path")
}

func parseReference(url string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(url)
	if err != nil {
		return Image{}, fmt.Errorf("bytecode.image.url %q: %w", url, err)
	}
	// The parser recognizes the default registry only in lower case, and treats what
	// can't be a host as a part of the path.
	host, repository := strings.TrimSuffix(strings.ToLower(reference.Domain(named)), ":443"), reference.Path(named)
	switch host {
	case "":
		return Image{}, fmt.Errorf("bytecode.image.url %q has no registry host", url)
	case "docker.io", "index.docker.io":
		host = "docker.io"
		if !strings.Contains(repository, "/") {
			repository = "library/" + repository
		}
	}
	image := Image{Repository: host + "/" + repository}
	if digested, ok := named.(reference.Digested); ok {
		image.Digest = digested.Digest().String()
	} else if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok {
		image.Tag = tagged.Tag()
	}
	return image, nil
}

// IsFile reports whether the bytecode is a file on the node. A file is in no registry,
// and has no signatures.
func (i Image) IsFile() bool { return strings.HasPrefix(i.Repository, filePrefix) }

// String returns the name for messages.
func (i Image) String() string {
	switch {
	case i.Digest != "":
		return i.Repository + "@" + i.Digest
	case i.Tag != "":
		return i.Repository + ":" + i.Tag
	}
	return i.Repository
}
