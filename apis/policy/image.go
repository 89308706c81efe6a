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

// filePrefix is what a file's name begins with. No repository does: where its host
// is named file, a port is behind the colon.
const filePrefix = "file:/"

// Image is bytecode by the name that rules are about.
type Image struct {
	// Repository is the full name of the repository, quay.io/acme/xdp-pass or
	// docker.io/library/busybox, with the host in lower case and without the port
	// 443; or file: and the path of a file on the node.
	Repository string
	// Tag is that of the reference, "latest" where it has neither tag nor digest,
	// and empty where it has a digest: then a tag counts for nothing.
	Tag string
	// Digest is that of the reference, sha256:… .
	Digest string
}

// ParseImage tells which image, or which file, a selector means. The error is for
// what can't be loaded from anywhere.
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
	// The parser knows the default registry in lower case alone, and takes what can't
	// be a host for a part of the path.
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

// IsFile tells that it is a file on the node, which no registry has and nobody signs.
func (i Image) IsFile() bool { return strings.HasPrefix(i.Repository, filePrefix) }

// String is the image as messages name it.
func (i Image) String() string {
	switch {
	case i.Digest != "":
		return i.Repository + "@" + i.Digest
	case i.Tag != "":
		return i.Repository + ":" + i.Tag
	}
	return i.Repository
}
