// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"path"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// filePrefix is the prefix of a file's name. A repository can't have it: after a host
// with the name file, the colon precedes a port.
const filePrefix = "file:/"

// Image identifies bytecode by the name that rules match.
type Image struct {
	// Reference is what the image's reference means. For a file on the node, its
	// Repository is file: and the path.
	reader.Reference
}

// ParseImage returns the image or file that a selector refers to. It returns an error if
// the bytecode can't be loaded from anywhere.
func ParseImage(b v1alpha1.BytecodeSelector) (Image, error) {
	switch {
	case b.Image != nil && b.Image.Url == "":
		return Image{}, problem.Errorf(problem.NoBytecode, "bytecode.image.url is empty")
	case b.Image != nil:
		return parseReference(b.Image.Url)
	case b.Path != nil && *b.Path == "":
		return Image{}, problem.Errorf(problem.NoBytecode, "bytecode.path is empty")
	case b.Path != nil && !path.IsAbs(*b.Path):
		return Image{}, problem.Errorf(problem.NoBytecode, "bytecode.path %q isn't absolute", *b.Path)
	case b.Path != nil:
		return Image{reader.Reference{Repository: filePrefix + path.Clean(*b.Path)[1:]}}, nil
	}
	return Image{}, problem.Errorf(problem.NoBytecode, "bytecode has neither an image nor a path")
}

func parseReference(url string) (Image, error) {
	parsed, err := reader.ParseReference(url)
	if err != nil {
		return Image{}, problem.Errorf(problem.InvalidReference, "bytecode.image.url %q: %w", url, err)
	}
	return Image{parsed}, nil
}

// IsFile reports whether the bytecode is a file on the node. A file is in no registry,
// and has no signatures.
func (i Image) IsFile() bool { return strings.HasPrefix(i.Repository, filePrefix) }
