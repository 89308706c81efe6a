// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	subject = "release@acme.example"
	issuer  = "https://issuer.example"
)

// sigstore is a complete Sigstore for tests: a certificate authority, a log, and a timestamp
// authority.
type sigstore struct {
	t   testing.TB
	log *ca.VirtualSigstore
	// authority issues the certificates of signers and of the timestamp authority.
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	stamper   *x509.Certificate
	stampKey  *ecdsa.PrivateKey
}

// used is the time of signing. Certificates are valid from five minutes before it to five
// minutes after it, and aren't valid now.
var used = time.Now().Add(-30 * time.Minute)

func newSigstore(tb testing.TB) *sigstore {
	tb.Helper()
	s := &sigstore{t: tb}
	var err error
	if s.log, err = ca.NewVirtualSigstore(); err != nil {
		tb.Fatal(err)
	}
	if s.authority, s.key, err = ca.GenerateRootCa(); err != nil {
		tb.Fatal(err)
	}
	s.stampKey = s.newKey()
	// It uses the current time, no matter which time is in the timestamp, so its certificate
	// must always be valid.
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}, s.authority, &s.stampKey.PublicKey, s.key)
	if err != nil {
		tb.Fatal(err)
	}
	if s.stamper, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *sigstore) newKey() *ecdsa.PrivateKey {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// root returns its trusted root with only the named parts.
func (s *sigstore) root(parts ...string) string {
	s.t.Helper()
	var authorities []root.CertificateAuthority
	var stampers []root.TimestampingAuthority
	logs, ctLogs := map[string]*root.TransparencyLog{}, map[string]*root.TransparencyLog{}
	for _, part := range parts {
		switch part {
		case "ca":
			authorities = append(authorities, &root.FulcioCertificateAuthority{Root: s.authority, URI: "https://ca.example"})
		case "log":
			logs = identified(s.t, s.log.RekorLogs())
		case "ct":
			ctLogs = identified(s.t, s.log.CTLogs())
		case "tsa":
			stampers = append(stampers, &root.SigstoreTimestampingAuthority{Root: s.authority, Leaf: s.stamper, URI: "https://tsa.example"})
		}
	}
	material, err := root.NewTrustedRoot(root.TrustedRootMediaType01, authorities, ctLogs, stampers, logs)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := material.MarshalJSON()
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// identified replaces the hexadecimal IDs of the logs with raw IDs.
func identified(tb testing.TB, logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	tb.Helper()
	for id, log := range logs {
		raw, err := hex.DecodeString(id)
		if err != nil {
			tb.Fatal(err)
		}
		log.ID = raw
	}
	return logs
}

// signing describes how to sign something.
type signing struct {
	subject, issuer string            // in the certificate
	key             *ecdsa.PrivateKey // a key instead of a certificate
	logged, stamped bool
	predicate       string
	old             bool // in cosign's format before v3
	at              time.Time
}

// sign returns a layer for a registry.
func (s *sigstore) sign(image v1.Hash, how signing) (v1.Descriptor, []byte) {
	s.t.Helper()
	key, certificate := how.key, (*x509.Certificate)(nil)
	if how.at.IsZero() {
		how.at = used
	}
	if key == nil {
		key = s.newKey()
		var err error
		if certificate, err = ca.GenerateLeafCert(how.subject, how.issuer, used.Add(-5*time.Minute), key, s.authority, s.key); err != nil {
			s.t.Fatal(err)
		}
	}
	if how.old && how.predicate == PredicateType {
		return s.signSimply(image, key, certificate, how)
	}
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{%q:%q}}],"predicateType":%q,"predicate":{}}`,
		image.Algorithm, image.Hex, how.predicate)
	const kind = "application/vnd.in-toto+json"
	signature := signed(s.t, key, dsse.PAE(kind, statement))
	material := s.material(key, certificate)
	if how.logged {
		envelope := &dsse.Envelope{
			PayloadType: kind, Payload: base64.StdEncoding.EncodeToString(statement),
			Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(signature)}},
		}
		// The log only accepts certificates.
		entry, err := s.log.GenerateTlogEntry(certificate, envelope, signature, how.at.Unix(), true)
		if err != nil {
			s.t.Fatal(err)
		}
		logged := entry.TransparencyLogEntry()
		logged.KindVersion = &protorekor.KindVersion{Kind: "dsse", Version: "0.0.1"}
		logged.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: s.promise(logged)}
		material.TlogEntries = []*protorekor.TransparencyLogEntry{logged}
	}
	if how.stamped {
		material.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: s.stamp(signature, how.at)}},
		}
	}
	text, err := protojson.Marshal(&protobundle.Bundle{
		MediaType:            "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: statement, PayloadType: kind, Signatures: []*protodsse.Signature{{Sig: signature}},
		}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return v1.Descriptor{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json"}, text
}

// signSimply signs in cosign's format before v3, whose parts are in annotations.
func (s *sigstore) signSimply(image v1.Hash, key *ecdsa.PrivateKey, certificate *x509.Certificate, how signing) (v1.Descriptor, []byte) {
	s.t.Helper()
	content := simple(image)
	signature := signed(s.t, key, content)
	annotations := map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(signature)}
	if certificate != nil {
		annotations[annotationCertificate] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	if how.stamped {
		text, err := json.Marshal(map[string][]byte{"SignedRFC3161Timestamp": s.stamp(signature, how.at)})
		if err != nil {
			s.t.Fatal(err)
		}
		annotations[annotationTimestamp] = string(text)
	}
	return v1.Descriptor{MediaType: types.MediaType(SimpleSigning), Annotations: annotations}, content
}

// simple is the content that cosign signed before v3.
func simple(image v1.Hash) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"quay.io/acme/xdp"},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, image)
}

// annotated returns a certificate's signature in cosign's format before v3.
func (s *sigstore) annotated(entity *ca.TestEntity) v1.Descriptor {
	s.t.Helper()
	verification, err := entity.VerificationContent()
	if err != nil {
		s.t.Fatal(err)
	}
	content, err := entity.SignatureContent()
	if err != nil {
		s.t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		s.t.Fatal(err)
	}
	entry := entries[0].TransparencyLogEntry()
	logged, err := json.Marshal(map[string]any{
		"SignedEntryTimestamp": s.promise(entry),
		"Payload": map[string]any{
			"body": entry.GetCanonicalizedBody(), "integratedTime": entry.GetIntegratedTime(),
			"logIndex": entry.GetLogIndex(), "logID": hex.EncodeToString(entry.GetLogId().GetKeyId()),
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return v1.Descriptor{MediaType: SimpleSigning, Annotations: map[string]string{
		annotationSignature:   base64.StdEncoding.EncodeToString(content.Signature()),
		annotationCertificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: verification.Certificate().Raw})),
		annotationBundle:      string(logged),
	}}
}

// promise returns the log's signature of an entry.
func (s *sigstore) promise(entry *protorekor.TransparencyLogEntry) []byte {
	s.t.Helper()
	promise, err := s.log.RekorSignPayload(tlog.RekorPayload{
		Body:           base64.StdEncoding.EncodeToString(entry.GetCanonicalizedBody()),
		IntegratedTime: entry.GetIntegratedTime(), LogIndex: entry.GetLogIndex(),
		LogID: hex.EncodeToString(entry.GetLogId().GetKeyId()),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return promise
}

func (s *sigstore) material(key *ecdsa.PrivateKey, certificate *x509.Certificate) *protobundle.VerificationMaterial {
	s.t.Helper()
	if certificate == nil {
		return &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_PublicKey{
			PublicKey: &protocommon.PublicKeyIdentifier{Hint: publicPEM(s.t, key)},
		}}
	}
	return &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_Certificate{
		Certificate: &protocommon.X509Certificate{RawBytes: certificate.Raw},
	}}
}

func (s *sigstore) stamp(signature []byte, at time.Time) []byte {
	s.t.Helper()
	digest := sha256.Sum256(signature)
	template := timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: digest[:], Time: at,
		Policy: []int{1, 3, 6, 1, 4, 1, 57264, 2},
	}
	response, err := template.CreateResponseWithOpts(s.stamper, s.stampKey, crypto.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

func signed(tb testing.TB, key *ecdsa.PrivateKey, content []byte) []byte {
	tb.Helper()
	digest := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		tb.Fatal(err)
	}
	return signature
}

func publicPEM(tb testing.TB, key *ecdsa.PrivateKey) string {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func digest(tb testing.TB, letter string) v1.Hash {
	tb.Helper()
	h, err := v1.NewHash("sha256:" + strings.Repeat(letter, 64))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func parsed(tb testing.TB, layer v1.Descriptor, content []byte) *Candidate {
	tb.Helper()
	c, err := Parse(layer, bytes.Clone(content))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
