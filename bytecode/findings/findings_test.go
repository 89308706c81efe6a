// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package findings

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/bpfman/bpfman-operator/bytecode/registry"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// served is a registry that returns the same manifest, list, and blob for every request.
type served struct{ manifest, index, blob []byte }

func (s *served) Tagged(ctx context.Context, _ string) (*v1.Manifest, error) {
	return s.Manifest(ctx, v1.Hash{})
}

func (s *served) Manifest(context.Context, v1.Hash) (*v1.Manifest, error) {
	var m v1.Manifest
	if json.Unmarshal(s.manifest, &m) != nil {
		return nil, registry.ErrMalformed
	}
	return &m, nil
}

func (s *served) Referrers(context.Context, v1.Hash) ([]v1.Descriptor, bool, error) {
	var m v1.IndexManifest
	if json.Unmarshal(s.index, &m) != nil {
		return nil, false, registry.ErrMalformed
	}
	return m.Manifests, false, nil
}

func (s *served) Blob(_ context.Context, _ v1.Hash, limit int64) ([]byte, error) {
	if int64(len(s.blob)) > limit {
		return nil, registry.ErrTooLarge
	}
	return s.blob, nil
}

const zeros = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func image(tb testing.TB) v1.Hash {
	tb.Helper()
	h, err := v1.NewHash(zeros)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func request(tb testing.TB) *reader.Request {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	return &reader.Request{
		Authorities: []reader.Authority{
			{Name: "p/a", Keys: []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}},
			{Name: "p/wrong", Keys: []string{"no key"}},
		},
		Attestations: []reader.Attestation{{PredicateType: "https://slsa.dev/provenance/v1", Authorities: []string{"p/a", "p/unknown"}}},
	}
}

// There is an answer for each part of the request, in the order of the request.
func TestFindingsOfEachAuthority(t *testing.T) {
	signatures, attestations, err := Find(t.Context(), &served{[]byte(`{}`), []byte(`{}`), nil}, []v1.Hash{image(t)}, request(t))
	want := reader.Answer{
		Signatures: []reader.Finding{
			{Authority: "p/a", Reason: "no signature was found"},
			{Authority: "p/wrong", Reason: "authority p/wrong: its public key can't be read: PEM decoding failed", Problem: problem.KeyUnusable},
		},
		Attestations: []reader.Finding{
			{Authority: "p/a", PredicateType: "https://slsa.dev/provenance/v1", Reason: "no attestation of type https://slsa.dev/provenance/v1 was found"},
			{Authority: "p/unknown", PredicateType: "https://slsa.dev/provenance/v1", Reason: "authority p/unknown is unknown", Problem: problem.NoSuchAuthority},
		},
	}
	if !slices.Equal(signatures, want.Signatures) || !slices.Equal(attestations, want.Attestations) || err != nil {
		t.Errorf("%+v, %+v, %v", signatures, attestations, err)
	}
}

// What wasn't read because of a timeout isn't treated as missing.
func TestNoTime(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	signatures, _, err := Find(ctx, &served{[]byte(`{}`), []byte(`{"manifests": [{"digest": "` + zeros + `"}]}`), nil}, []v1.Hash{image(t)}, request(t))
	if err == nil || err.Error() != "there was not enough time to check all signatures and attestations of the image" || signatures != nil {
		t.Errorf("%+v, %v", signatures, err)
	}
}

func TestReasons(t *testing.T) {
	const attestation = "https://slsa.dev/provenance/v1"
	for want, c := range map[string]wanted{
		"no attestation of type " + attestation + " was found":                      {predicate: attestation},
		"the only attestation that was found is not made with the authority's keys": {predicate: attestation, refused: map[string]int{"not made with the authority's keys": 1}},
		"none of the 10 attestations that were found is valid: 5 b, 2 a, 2 c, and 1 other reasons": {
			predicate: attestation, refused: map[string]int{"c": 2, "b": 5, "a": 2, "d": 1},
		},
		"the only attestation that was found is " + strings.Repeat("x", maxReason) + "…": {
			predicate: attestation, refused: map[string]int{strings.Repeat("x", 9999): 1},
		},
	} {
		if got := c.reason(false); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// For any content in a registry, there is an answer without a signer.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`{}`), []byte(`{}`))
	f.Add([]byte(`{"layers": [{"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": "`+zeros+`", "annotations": {"dev.cosignproject.cosign/signature": "AAAA"}}]}`),
		[]byte(`{"manifests": [{"digest": "`+zeros+`"}]}`), []byte(`{"critical": {"image": {"docker-manifest-digest": "`+zeros+`"}, "type": "cosign container image signature"}}`))
	f.Add([]byte(`{"layers": [{"mediaType": "application/vnd.dsse.envelope.v1+json", "digest": "`+zeros+`"}]}`),
		[]byte(`{"manifests": [{"artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json", "digest": "`+zeros+`"}]}`),
		[]byte(`{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AA=="}]}`))
	f.Add([]byte(`{"layers": [{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "digest": "`+zeros+`", "urls": ["https://elsewhere.example"]}]}`),
		[]byte(`{`), []byte(`{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}`))
	asked := request(f)
	f.Fuzz(func(t *testing.T, manifest, index, blob []byte) {
		signatures, attestations, err := Find(t.Context(), &served{manifest, index, blob}, []v1.Hash{image(t)}, asked)
		if err != nil || len(signatures) != 2 || len(attestations) != 2 {
			t.Fatalf("%+v, %+v, %v", signatures, attestations, err)
		}
		for _, finding := range slices.Concat(signatures, attestations) {
			if finding.Signer != "" || finding.Reason == "" || len(finding.Reason) > 2000 {
				t.Errorf("%+v", finding)
			}
		}
	})
}
