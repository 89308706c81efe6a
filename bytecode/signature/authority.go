// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Authority verifies signatures of an authority. A signature is valid if it can be
// verified in any of its ways.
type Authority struct {
	keyless bool
	ways    []way
}

// way is one way to verify a signature.
type way struct {
	verifier *verify.Verifier
	policy   []verify.PolicyOption
	// key is the fingerprint of the key, if the way uses one.
	key string
}

// NewAuthority creates an Authority from material that a user wrote.
func NewAuthority(a reader.Authority) (*Authority, error) {
	var material *root.TrustedRoot
	if a.TrustedRoot != "" {
		var err error
		if material, err = root.NewTrustedRootFromJSON([]byte(a.TrustedRoot)); err != nil {
			return nil, problem.Errorf(problem.TrustedRootUnusable, "its trusted root can't be read: %w", err)
		}
	}
	if len(a.Identities) > 0 {
		return keyless(a.Identities, material)
	}
	return byKeys(a.Keys, material)
}

// keyless returns an authority that verifies certificates. It requires everything that
// the trusted root contains. To make a log optional, the user removes it from the
// trusted root.
func keyless(identities []reader.Identity, material *root.TrustedRoot) (*Authority, error) {
	if material == nil || len(material.FulcioCertificateAuthorities()) == 0 {
		return nil, problem.Errorf(problem.TrustedRootUnusable, "its trusted root has no certificate authority")
	}
	if len(material.RekorLogs())+len(material.TimestampingAuthorities()) == 0 {
		return nil, problem.Errorf(problem.TrustedRootUnusable, "its trusted root has neither a transparency log nor a timestamp authority, to prove when a certificate was used")
	}
	demanded := []verify.VerifierOption{verify.WithObserverTimestamps(1), verify.WithoutStatementPredicate()}
	if len(material.RekorLogs()) > 0 {
		demanded = append(demanded, verify.WithTransparencyLog(1))
	}
	if len(material.CTLogs()) > 0 {
		demanded = append(demanded, verify.WithSignedCertificateTimestamps(1))
	}
	verifier, err := verify.NewVerifier(material, demanded...)
	if err != nil {
		return nil, problem.Errorf(problem.TrustedRootUnusable, "its trusted root can't be used: %w", err)
	}
	w := way{verifier: verifier}
	for _, i := range identities {
		identity, err := verify.NewShortCertificateIdentity(i.Issuer, anchored(i.IssuerPattern), i.Subject, anchored(i.SubjectPattern))
		if err != nil {
			return nil, problem.Errorf(problem.TrustedRootUnusable, "its identity %s (%s) can't be used: %w", i.Subject+i.SubjectPattern, i.Issuer+i.IssuerPattern, err)
		}
		w.policy = append(w.policy, verify.WithCertificateIdentity(identity))
	}
	return &Authority{keyless: true, ways: []way{w}}, nil
}

// anchored returns a pattern that matches only whole values.
func anchored(pattern string) string {
	if pattern == "" {
		return ""
	}
	return `\A(?:` + pattern + `)\z`
}

func byKeys(keys []string, material *root.TrustedRoot) (*Authority, error) {
	a := &Authority{}
	for _, key := range keys {
		public, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(key))
		if err != nil {
			return nil, problem.Errorf(problem.KeyUnusable, "its public key can't be read: %w", err)
		}
		fingerprint, err := fingerprint(public)
		if err != nil {
			return nil, err
		}
		algorithms, err := algorithmsOf(public)
		if err != nil {
			return nil, problem.Errorf(problem.KeyUnusable, "its public key %s can't be used: %w", fingerprint, err)
		}
		for _, algorithm := range algorithms {
			verifiers, err := keyVerifiers(algorithm, material)
			if err != nil {
				return nil, err
			}
			for _, v := range verifiers {
				a.ways = append(a.ways, way{v, []verify.PolicyOption{verify.WithKey()}, fingerprint})
			}
		}
	}
	if len(a.ways) == 0 {
		return nil, problem.Errorf(problem.AuthorityIncomplete, "it has neither keys nor identities")
	}
	return a, nil
}

// fingerprint returns the SHA-256 hash of the key's PKIX form in DER, which is the
// output of `openssl pkey -pubin -outform DER | sha256sum`.
func fingerprint(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", problem.Errorf(problem.KeyUnusable, "its public key can't be used: %w", err)
	}
	sum := sha256.Sum256(der)
	return "SHA256:" + hex.EncodeToString(sum[:]), nil
}

// algorithmsOf returns the algorithms that a key can be used with: Sigstore's default
// for the type of key, and for longer ECDSA keys also SHA-256, which cosign used before.
func algorithmsOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	agreed, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	long, ok := public.(*ecdsa.PublicKey)
	if !ok || long.Curve == elliptic.P256() {
		return []signature.Verifier{agreed}, nil
	}
	former, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return []signature.Verifier{agreed, former}, nil
}

// keyVerifiers returns the verifiers for one key. With a trusted root, they require an
// entry in its log, or a timestamp of its timestamp authority. Both prove when the key
// was used.
func keyVerifiers(key signature.Verifier, material *root.TrustedRoot) ([]*verify.Verifier, error) {
	keyed := &oneKey{TrustedMaterial: &root.BaseTrustedMaterial{}, key: root.NewExpiringKey(key, time.Time{}, time.Time{})}
	demands := [][]verify.VerifierOption{{verify.WithNoObserverTimestamps()}}
	if material != nil {
		keyed.TrustedMaterial = material
		demands = nil
		if len(material.RekorLogs()) > 0 {
			demands = append(demands, []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithNoObserverTimestamps()})
		}
		if len(material.TimestampingAuthorities()) > 0 {
			demands = append(demands, []verify.VerifierOption{verify.WithSignedTimestamps(1)})
		}
		if len(demands) == 0 {
			return nil, problem.Errorf(problem.TrustedRootUnusable, "its trusted root has neither a transparency log nor a timestamp authority")
		}
	}
	var verifiers []*verify.Verifier
	for _, demand := range demands {
		v, err := verify.NewVerifier(keyed, append(demand, verify.WithoutStatementPredicate())...)
		if err != nil {
			return nil, problem.Errorf(problem.KeyUnusable, "its key can't be used: %w", err)
		}
		verifiers = append(verifiers, v)
	}
	return verifiers, nil
}

// oneKey is trusted material with one public key. It ignores the key's name in a bundle,
// because an attacker can choose it.
type oneKey struct {
	root.TrustedMaterial
	key *root.ExpiringKey
}

func (o *oneKey) PublicKeyVerifier(string) (root.TimeConstrainedVerifier, error) { return o.key, nil }

// Verify returns who signed one of the digests with the candidate: the fingerprint of a
// key, or the subject and issuer of a certificate. The error says for users why the
// signature isn't valid.
func (a *Authority) Verify(c *Candidate, digests []v1.Hash) (string, error) {
	if err := a.fits(c); err != nil {
		return "", err
	}
	var first error
	for _, w := range a.ways {
		signer, err := w.verify(c, digests)
		if err == nil {
			return signer, nil
		}
		if first == nil || errors.Is(first, errAnother) || errors.Is(err, errNotOfImage) {
			first = err
		}
	}
	return "", first
}

var (
	errNotByKey         = errors.New("made with a certificate, not with a key")
	errNotByCertificate = errors.New("made with a key, not with a certificate")
	errAnother          = errors.New("not made with the authority's keys")
	errNotOfImage       = errors.New("of another image")
)

// fits checks what doesn't need cryptography.
func (a *Authority) fits(c *Candidate) error {
	content, err := c.bundle.VerificationContent()
	if err != nil {
		return errNoBundle
	}
	switch certified := content.Certificate() != nil; {
	case a.keyless && !certified:
		return errNotByCertificate
	case !a.keyless && certified:
		return errNotByKey
	}
	return nil
}

func (w *way) verify(c *Candidate, digests []v1.Hash) (string, error) {
	if c.signed != nil {
		result, err := w.verifier.Verify(c.bundle, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(c.signed)), w.policy...))
		if err != nil {
			return "", w.explain(err)
		}
		if !names(c.signed, digests) {
			return "", errNotOfImage
		}
		return w.signer(result)
	}
	var failure error
	for _, digest := range digests {
		sum, err := hex.DecodeString(digest.Hex)
		if err != nil {
			return "", fmt.Errorf("digest %s: %w", digest, err)
		}
		result, err := w.verifier.Verify(c.bundle, verify.NewPolicy(verify.WithArtifactDigest(digest.Algorithm, sum), w.policy...))
		if err == nil {
			return w.signer(result)
		}
		failure = w.explain(err)
	}
	return "", failure
}

func (w *way) signer(result *verify.VerificationResult) (string, error) {
	if w.key != "" {
		return w.key, nil
	}
	if result.Signature == nil || result.Signature.Certificate == nil {
		return "", errors.New("made by an unknown signer")
	}
	certificate := result.Signature.Certificate
	return fmt.Sprintf("%s (%s)", certificate.SubjectAlternativeName, certificate.Issuer), nil
}

// explanations maps the prefixes of sigstore-go's errors to explanations. The prefix
// shows which step of the verification failed.
var explanations = []struct{ begins, means string }{
	{"failed to verify log inclusion", "not in a transparency log of the trusted root"},
	{"failed to verify timestamps", "without proof of when it was made"},
	{"failed to verify leaf certificate", "with a certificate that no authority of the trusted root issued, or that wasn't valid when it was used"},
	{"failed to verify signed certificate timestamp", "with a certificate that isn't in a certificate transparency log of the trusted root"},
}

func (w *way) explain(err error) error {
	var stranger *verify.ErrNoMatchingCertificateIdentity
	text := err.Error()
	for _, e := range explanations {
		if strings.HasPrefix(text, e.begins) {
			return errors.New(e.means)
		}
	}
	switch {
	case errors.As(err, &stranger):
		return fmt.Errorf("made by another signer: %w", stranger)
	case strings.Contains(text, "does not match any digest in statement"), strings.Contains(text, "does not match digests in statement"),
		strings.Contains(text, "artifact does not match digest"):
		return errNotOfImage
	case w.key != "" && strings.HasPrefix(text, "failed to verify signature"):
		return errAnother
	}
	return fmt.Errorf("not valid: %w", err)
}
