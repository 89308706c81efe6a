// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package signature parses signatures and attestations in the formats of all cosign
// versions, and verifies who created them. sigstore-go does all cryptography. Older
// formats are converted to Sigstore's bundles first.
package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// The media types of layers with signatures and attestations.
const (
	SimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	Envelope      = "application/vnd.dsse.envelope.v1+json"
	BundlePrefix  = "application/vnd.dev.sigstore.bundle"
)

// PredicateType is the type of the statements with which cosign signs images since v3.
const PredicateType = "https://sigstore.dev/cosign/sign/v1"

// The annotations of cosign's older formats:
// https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationBundle      = "dev.sigstore.cosign/bundle"
	annotationTimestamp   = "dev.sigstore.cosign/rfc3161timestamp"
)

// oldBundle is the version of Sigstore's bundles that requires no more of a log entry
// than cosign's older formats contain: the log's promise to include it.
const oldBundle = "application/vnd.dev.sigstore.bundle+json;version=0.1"

var (
	errNoBundle   = errors.New("not a Sigstore bundle that can be read")
	errNoEnvelope = errors.New("not an envelope that can be read")
	errNoEntry    = errors.New("with a log entry that can't be read")
)

// Candidate is a potential signature or attestation. Nothing in it is verified.
type Candidate struct {
	// Predicate is the claimed type of the statement. For a signature, it is
	// PredicateType.
	Predicate string

	bundle *bundle.Bundle
	// signed is the signed content, if the bundle doesn't contain it.
	signed []byte
}

// Parse parses a layer, according to its media type and annotations. The layer isn't
// trusted. For users, the error completes a sentence that starts with "it is". It
// doesn't contain the errors of libraries that change, such as protojson's.
func Parse(layer v1.Descriptor, content []byte) (*Candidate, error) {
	switch kind := string(layer.MediaType); {
	case kind == SimpleSigning:
		return parseSimple(layer.Annotations, content)
	case kind == Envelope:
		return parseEnvelope(layer.Annotations, content)
	case strings.HasPrefix(kind, BundlePrefix):
		return parseBundle(content)
	}
	return nil, fmt.Errorf("of an unknown kind, %q", layer.MediaType)
}

func parseBundle(content []byte) (*Candidate, error) {
	var b bundle.Bundle
	if err := b.UnmarshalJSON(content); err != nil {
		return nil, errNoBundle
	}
	return claiming(&b)
}

// claiming finds out the type of the statement in the bundle.
func claiming(b *bundle.Bundle) (*Candidate, error) {
	c := &Candidate{Predicate: PredicateType, bundle: b}
	if envelope := b.GetDsseEnvelope(); envelope != nil {
		var statement struct {
			PredicateType string `json:"predicateType"`
		}
		if err := json.Unmarshal(envelope.GetPayload(), &statement); err != nil {
			return nil, errors.New("without a statement")
		}
		c.Predicate = statement.PredicateType
	}
	return c, nil
}

// parseSimple parses a signature whose parts are in annotations, and whose content names
// the signed image.
func parseSimple(annotations map[string]string, content []byte) (*Candidate, error) {
	signature, err := base64.StdEncoding.DecodeString(annotations[annotationSignature])
	if err != nil || len(signature) == 0 {
		return nil, errors.New("without a signature")
	}
	digest := sha256.Sum256(content)
	b, err := fromAnnotations(annotations, &protobundle.Bundle{Content: &protobundle.Bundle_MessageSignature{
		MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest[:]},
			Signature:     signature,
		},
	}})
	if err != nil {
		return nil, err
	}
	return &Candidate{Predicate: PredicateType, bundle: b, signed: content}, nil
}

// parseEnvelope parses an attestation, which contains its content.
func parseEnvelope(annotations map[string]string, content []byte) (*Candidate, error) {
	var envelope dsse.Envelope
	if err := json.Unmarshal(content, &envelope); err != nil {
		return nil, errNoEnvelope
	}
	statement, err := envelope.DecodeB64Payload()
	if err != nil {
		return nil, errNoEnvelope
	}
	proto := &protodsse.Envelope{Payload: statement, PayloadType: envelope.PayloadType}
	for _, s := range envelope.Signatures {
		signature, err := base64.StdEncoding.DecodeString(s.Sig)
		if err != nil {
			return nil, errNoEnvelope
		}
		proto.Signatures = append(proto.Signatures, &protodsse.Signature{Sig: signature, Keyid: s.KeyID})
	}
	b, err := fromAnnotations(annotations, &protobundle.Bundle{Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: proto}})
	if err != nil {
		return nil, err
	}
	return claiming(b)
}

// fromAnnotations adds the annotations of cosign's older formats to a bundle.
func fromAnnotations(annotations map[string]string, b *protobundle.Bundle) (*bundle.Bundle, error) {
	b.MediaType = oldBundle
	b.VerificationMaterial = &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}},
	}
	if certificate := annotations[annotationCertificate]; certificate != "" {
		block, _ := pem.Decode([]byte(certificate))
		if block == nil {
			return nil, errors.New("with a certificate that is not PEM")
		}
		b.VerificationMaterial.Content = &protobundle.VerificationMaterial_X509CertificateChain{
			X509CertificateChain: &protocommon.X509CertificateChain{
				Certificates: []*protocommon.X509Certificate{{RawBytes: block.Bytes}},
			},
		}
	}
	if entry := annotations[annotationBundle]; entry != "" {
		logged, err := parseEntry(entry)
		if err != nil {
			return nil, err
		}
		b.VerificationMaterial.TlogEntries = []*protorekor.TransparencyLogEntry{logged}
	}
	if stamp := annotations[annotationTimestamp]; stamp != "" {
		var signed struct{ SignedRFC3161Timestamp []byte }
		if err := json.Unmarshal([]byte(stamp), &signed); err != nil {
			return nil, errors.New("with a timestamp that can't be read")
		}
		b.VerificationMaterial.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: signed.SignedRFC3161Timestamp}},
		}
	}
	whole, err := bundle.NewBundle(b)
	if err != nil {
		return nil, errNoBundle
	}
	return whole, nil
}

// parseEntry parses the log entry that cosign stores with a signature.
func parseEntry(annotation string) (*protorekor.TransparencyLogEntry, error) {
	var logged struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(annotation), &logged); err != nil {
		return nil, errNoEntry
	}
	id, err := hex.DecodeString(logged.Payload.LogID)
	if err != nil {
		return nil, errNoEntry
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(logged.Payload.Body, &kind); err != nil {
		return nil, errNoEntry
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex:          logged.Payload.LogIndex,
		LogId:             &protocommon.LogId{KeyId: id},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime:    logged.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: logged.SignedEntryTimestamp},
		CanonicalizedBody: logged.Payload.Body,
	}, nil
}

// names reports whether the signed content in cosign's simple format names one of the
// digests.
func names(signed []byte, digests []v1.Hash) bool {
	var claim payload.SimpleContainerImage
	if json.Unmarshal(signed, &claim) != nil {
		return false
	}
	if claim.Critical.Type != payload.CosignSignatureType && claim.Critical.Type != PredicateType {
		return false
	}
	for _, digest := range digests {
		if claim.Critical.Image.DockerManifestDigest == digest.String() {
			return true
		}
	}
	return false
}
