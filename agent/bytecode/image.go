// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"fmt"
	"regexp"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Image is a resolved image reference. It identifies content, which registries can't
// change.
type Image struct {
	// Reference is the reference in the user's object.
	Reference string
	// Digest is the digest of the manifest or index that the reference resolves to.
	Digest string
	// Manifest is the digest of the manifest for this machine. It equals Digest, unless
	// that is the digest of an index.
	Manifest string
}

// Resolved returns the reference of the manifest or index that the user's reference
// resolves to, with the digest only.
func (i Image) Resolved() string {
	named, err := parse(i.Reference)
	if err != nil {
		return i.Reference // it was never resolved
	}
	return named.Repository + "@" + i.Digest
}

// digestPattern matches the digests of manifests. They are parts of paths in the Store.
var digestPattern = regexp.MustCompile(`^sha(256:[0-9a-f]{64}|512:[0-9a-f]{128})$`)

// check returns an error if the image isn't resolved. The digests come from a process
// that reads what others wrote.
func (i Image) check() error {
	for _, digest := range []string{i.Digest, i.Manifest} {
		if !digestPattern.MatchString(digest) {
			return problem.Errorf(problem.ReadAgain, "image %s: %q is not a digest", i.Reference, digest)
		}
	}
	return nil
}

func parse(url string) (reader.Reference, error) {
	named, err := reader.ParseReference(url)
	if err != nil {
		return named, fmt.Errorf("bytecode image %q: %w", url, err)
	}
	return named, nil
}

// hostOf returns the host of an image's registry, or "" if the reference can't be parsed.
func hostOf(url string) string {
	named, _ := parse(url)
	return named.Host()
}
