// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecodetest contains a reader in memory, in place of bpfman-reader, for tests
// of the agent that need some image.
package bytecodetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Reader is a reader in memory. The zero value reads any image.
type Reader struct {
	// Resolve, if not nil, returns the digest of an image and that of its manifest. If it
	// returns none, the image has made-up ones, which only depend on the reference.
	Resolve func(ctx context.Context, reference string) (digest, manifest string, err error)
	// Signers, if not nil, returns the names of the authorities that signed an image,
	// without the names of policies.
	Signers func(digest string) []string
}

// Variable is the only global variable of each object, a byte.
const Variable = "g"

// Read answers a request, for [bytecode.Library]. An object's content depends on the
// digest of its manifest. Its functions aren't known, so that all can be loaded.
func (r Reader) Read(ctx context.Context, request *reader.Request, files *bytecode.Files) reader.Answer {
	digest, manifest, err := r.resolve(ctx, request.Image)
	if err != nil {
		return reader.Answer{Error: err.Error()}
	}
	answer := reader.Answer{Digest: digest, Manifest: manifest}
	if request.Object && request.Have != manifest {
		content := "the object of " + manifest
		if _, err := files.Object.WriteString(content); err != nil {
			return reader.Answer{Error: err.Error()}
		}
		answer.Object = &reader.Object{
			Digest: DigestOf(content), Size: int64(len(content)), License: "GPL",
			Adapted:   reader.Adapted{Digest: DigestOf(content), Format: reader.Format},
			Variables: []reader.Variable{{Name: Variable, Section: ".rodata", Size: 1, Type: &reader.Type{Name: "__u8", Kind: reader.Unsigned, Width: 1}}},
		}
	}
	for _, authority := range request.Authorities {
		answer.Signatures = append(answer.Signatures, r.finding(digest, authority.Name, ""))
	}
	for _, attestation := range request.Attestations {
		for _, authority := range attestation.Authorities {
			answer.Attestations = append(answer.Attestations, r.finding(digest, authority, attestation.PredicateType))
		}
	}
	return answer
}

func (r Reader) resolve(ctx context.Context, image string) (digest, manifest string, err error) {
	if r.Resolve != nil {
		if digest, manifest, err = r.Resolve(ctx, image); err != nil || digest != "" {
			return digest, manifest, err
		}
	}
	_, digest, byDigest := strings.Cut(image, "@")
	if !byDigest {
		digest = DigestOf(image)
	}
	return digest, digest, nil
}

func (r Reader) finding(digest, authority, predicate string) reader.Finding {
	_, name, _ := strings.Cut(authority, "/")
	if r.Signers != nil && slices.Contains(r.Signers(digest), name) {
		return reader.Finding{Authority: authority, PredicateType: predicate, Signer: "SHA256:" + name}
	}
	return reader.Finding{Authority: authority, PredicateType: predicate, Reason: "no signature"}
}

// DigestOf returns the digest of a text.
func DigestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
