// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package signature

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/data"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

const provenance = "https://slsa.dev/provenance/v1"

// The validity of a certificate depends on the subject, on the authority, and on a proof
// that it was used while it was valid. None of these certificates is valid now.
func TestKeyless(t *testing.T) {
	ours, others := newSigstore(t), newSigstore(t)
	image := digest(t, "a")
	exact := reader.Identity{Issuer: issuer, Subject: subject}
	right := signing{subject: subject, issuer: issuer, logged: true, stamped: true, predicate: PredicateType}
	with := func(change func(*signing)) signing {
		s := right
		change(&s)
		return s
	}
	const (
		noLog     = "not in a transparency log of the trusted root"
		noTime    = "without proof of when it was made"
		notIssued = "with a certificate that no authority of the trusted root issued, or that wasn't valid when it was used"
		stranger  = "made by another signer: "
	)
	for name, c := range map[string]struct {
		by       *sigstore
		how      signing
		identity reader.Identity
		root     []string
		want     string // "" if it is valid
	}{
		"log and timestamp":                       {ours, right, exact, []string{"ca", "log", "tsa"}, ""},
		"log alone":                               {ours, with(func(s *signing) { s.stamped = false }), exact, []string{"ca", "log"}, ""},
		"timestamp alone, root without a log":     {ours, with(func(s *signing) { s.logged = false }), exact, []string{"ca", "tsa"}, ""},
		"simple signing, timestamp":               {ours, with(func(s *signing) { s.logged, s.old = false, true }), exact, []string{"ca", "tsa"}, ""},
		"an attestation":                          {ours, with(func(s *signing) { s.predicate = provenance }), exact, []string{"ca", "log"}, ""},
		"patterns":                                {ours, right, reader.Identity{IssuerPattern: "https://.*", SubjectPattern: ".*@acme[.]example"}, []string{"ca", "log"}, ""},
		"timestamp alone, root with a log":        {ours, with(func(s *signing) { s.logged = false }), exact, []string{"ca", "log", "tsa"}, noLog},
		"neither log nor timestamp":               {ours, with(func(s *signing) { s.logged, s.stamped = false, false }), exact, []string{"ca", "tsa"}, noTime},
		"neither, simple signing":                 {ours, with(func(s *signing) { s.logged, s.stamped, s.old = false, false, true }), exact, []string{"ca", "tsa"}, noTime},
		"timestamp after the certificate's end":   {ours, with(func(s *signing) { s.logged, s.at = false, used.Add(10*time.Minute) }), exact, []string{"ca", "tsa"}, notIssued},
		"log's entry after the certificate's end": {ours, with(func(s *signing) { s.stamped, s.at = false, used.Add(10*time.Minute) }), exact, []string{"ca", "log"}, noLog},
		"root with a log of certificates":         {ours, right, exact, []string{"ca", "log", "ct"}, "with a certificate that isn't in a certificate transparency log of the trusted root"},
		"another trusted root":                    {others, right, exact, []string{"ca", "log", "tsa"}, noLog},
		"another certificate authority":           {others, with(func(s *signing) { s.logged = false }), exact, []string{"ca", "tsa"}, noTime},
		"another subject":                         {ours, with(func(s *signing) { s.subject = "mallory@acme.example" }), exact, []string{"ca", "log"}, stranger},
		"another issuer":                          {ours, with(func(s *signing) { s.issuer = "https://elsewhere.example" }), exact, []string{"ca", "log"}, stranger},
		"a subject that begins alike":             {ours, with(func(s *signing) { s.subject += ".evil" }), exact, []string{"ca", "log"}, stranger},
		"a pattern matches the whole, not a part": {ours, right, reader.Identity{Issuer: issuer, SubjectPattern: "release"}, []string{"ca", "log"}, stranger},
		"a pattern of alternatives is whole":      {ours, right, reader.Identity{Issuer: issuer, SubjectPattern: "x|release@acme"}, []string{"ca", "log"}, stranger},
		"a key, even one that would be right":     {ours, signing{key: ours.newKey(), predicate: PredicateType}, exact, []string{"ca", "tsa"}, "made with a key, not with a certificate"},
		"timestamp before the certificate's time": {ours, with(func(s *signing) { s.logged, s.at = false, used.Add(-10*time.Minute) }), exact, []string{"ca", "tsa"}, notIssued},
	} {
		t.Run(name, func(t *testing.T) {
			layer, content := c.by.sign(image, c.how)
			authority, err := NewAuthority(reader.Authority{
				Name: "policy/release", Identities: []reader.Identity{{Issuer: "https://none.example", Subject: "none"}, c.identity},
				TrustedRoot: ours.root(c.root...),
			})
			if err != nil {
				t.Fatal(err)
			}
			candidate := parsed(t, layer, content)
			if candidate.Predicate != c.how.predicate {
				t.Errorf("predicate %q", candidate.Predicate)
			}
			signer, err := authority.Verify(candidate, []v1.Hash{digest(t, "b"), image})
			switch {
			case c.want == "" && (err != nil || signer != subject+" ("+issuer+")"):
				t.Errorf("signer %q, %v", signer, err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("signer %q, %v; want %q", signer, err, c.want)
			}
			if _, err := authority.Verify(candidate, []v1.Hash{digest(t, "b")}); err == nil {
				t.Error("it counts for another image")
			} else if c.want == "" && err.Error() != "of another image" {
				t.Error(err)
			}
		})
	}
}

// A signature in cosign's format before v3, with the promise of a log, which cosign
// stores in an annotation.
func TestPromiseOfALog(t *testing.T) {
	s := newSigstore(t)
	image := digest(t, "a")
	content := simple(image)
	entity, err := s.log.SignAtTime(subject, issuer, content, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	layer := s.annotated(entity)
	material, err := root.NewTrustedRoot(root.TrustedRootMediaType01, s.log.FulcioCertificateAuthorities(), nil, nil, identified(t, s.log.RekorLogs()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := material.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := NewAuthority(reader.Authority{
		Identities: []reader.Identity{{Issuer: issuer, Subject: subject}}, TrustedRoot: string(text),
	})
	if err != nil {
		t.Fatal(err)
	}
	if signer, err := authority.Verify(parsed(t, layer, content), []v1.Hash{image}); err != nil || signer != subject+" ("+issuer+")" {
		t.Errorf("signer %q, %v", signer, err)
	}
	if signer, err := authority.Verify(parsed(t, layer, simple(digest(t, "b"))), []v1.Hash{digest(t, "b")}); err == nil {
		t.Errorf("what the entry isn't of counts: %s", signer)
	}
	const promised = "SignedEntryTimestamp\":\""
	at := strings.Index(layer.Annotations[annotationBundle], promised) + len(promised) + 20
	layer.Annotations[annotationBundle] = layer.Annotations[annotationBundle][:at] + "AAAA" + layer.Annotations[annotationBundle][at+4:]
	if signer, err := authority.Verify(parsed(t, layer, content), []v1.Hash{image}); err == nil {
		t.Errorf("another promise counts: %s", signer)
	}
}

func TestKeys(t *testing.T) {
	s := newSigstore(t)
	image := digest(t, "a")
	key, another := s.newKey(), s.newKey()
	by := signing{key: key, predicate: PredicateType}
	stamped := by
	stamped.stamped = true
	old, oldStamped := by, stamped
	old.old, oldStamped.old = true, true
	certified := signing{subject: subject, issuer: issuer, logged: true, predicate: PredicateType}
	for name, c := range map[string]struct {
		how  signing
		keys []string
		root string
		want string
	}{
		"its key":                              {by, []string{publicPEM(t, key)}, "", ""},
		"simple signing":                       {old, []string{publicPEM(t, key)}, "", ""},
		"rotated: the old key":                 {by, []string{publicPEM(t, another), publicPEM(t, key)}, "", ""},
		"rotated: the new key":                 {by, []string{publicPEM(t, key), publicPEM(t, another)}, "", ""},
		"another key":                          {by, []string{publicPEM(t, another)}, "", "not made with the authority's keys"},
		"another key, simple signing":          {old, []string{publicPEM(t, another)}, "", "not made with the authority's keys"},
		"a certificate":                        {certified, []string{publicPEM(t, key)}, "", "made with a certificate, not with a key"},
		"root, timestamp":                      {stamped, []string{publicPEM(t, key)}, s.root("tsa"), ""},
		"root with a log, timestamp":           {stamped, []string{publicPEM(t, key)}, s.root("log", "tsa"), ""},
		"root, timestamp, simple signing":      {oldStamped, []string{publicPEM(t, key)}, s.root("tsa"), ""},
		"root, no timestamp":                   {by, []string{publicPEM(t, key)}, s.root("tsa"), "without proof of when it was made"},
		"root, no timestamp, simple signing":   {old, []string{publicPEM(t, key)}, s.root("tsa"), "without proof of when it was made"},
		"root, no log's entry":                 {by, []string{publicPEM(t, key)}, s.root("log"), "not in a transparency log of the trusted root"},
		"another root's timestamp":             {stamped, []string{publicPEM(t, key)}, newSigstore(t).root("tsa"), "without proof of when it was made"},
		"timestamp doesn't mend another's key": {stamped, []string{publicPEM(t, another)}, s.root("tsa"), "not made with the authority's keys"},
	} {
		t.Run(name, func(t *testing.T) {
			authority, err := NewAuthority(reader.Authority{Name: "policy/key", Keys: c.keys, TrustedRoot: c.root})
			if err != nil {
				t.Fatal(err)
			}
			layer, content := s.sign(image, c.how)
			candidate := parsed(t, layer, content)
			signer, err := authority.Verify(candidate, []v1.Hash{image})
			switch {
			case c.want == "" && (err != nil || signer != fingerprintOf(t, publicPEM(t, key))):
				t.Errorf("signer %q, %v", signer, err)
			case c.want != "" && (err == nil || err.Error() != c.want):
				t.Errorf("signer %q, %v; want %q", signer, err, c.want)
			}
			if c.want != "" {
				return
			}
			if _, err := authority.Verify(candidate, []v1.Hash{digest(t, "b")}); err == nil || err.Error() != "of another image" {
				t.Errorf("for another image: %v", err)
			}
		})
	}
}

// fingerprintOf returns the fingerprint of a key according to openssl and sha256sum.
func fingerprintOf(t *testing.T, text string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatal("no PEM")
	}
	der := block.Bytes
	if _, err := x509.ParsePKIXPublicKey(der); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return "SHA256:" + hex.EncodeToString(sum[:])
}

// What Sigstore's public services created for a release of npm's package sigstore: a
// certificate of Fulcio with a timestamp of a certificate transparency log, and an entry
// in Rekor.
func TestPublicGood(t *testing.T) {
	material, err := data.TrustedRoot(t, "public-good.json").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	b := data.Bundle(t, "sigstore.js@2.0.0-provenance.sigstore.json")
	content, err := b.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := NewAuthority(reader.Authority{
		Identities: []reader.Identity{{
			Issuer:         "https://token.actions.githubusercontent.com",
			SubjectPattern: "https://github.com/sigstore/sigstore-js/[.]github/workflows/release[.]yml@refs/heads/main",
		}},
		TrustedRoot: string(material),
	})
	if err != nil {
		t.Fatal(err)
	}
	released, err := v1.NewHash("sha512:" + sigstoreJS)
	if err != nil {
		t.Fatal(err)
	}
	candidate := parsed(t, v1.Descriptor{MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1"}, content)
	const want = "https://github.com/sigstore/sigstore-js/.github/workflows/release.yml@refs/heads/main (https://token.actions.githubusercontent.com)"
	if signer, err := authority.Verify(candidate, []v1.Hash{released}); err != nil || signer != want {
		t.Errorf("signer %q, %v", signer, err)
	}
	if candidate.Predicate != "https://slsa.dev/provenance/v1" {
		t.Errorf("predicate %q", candidate.Predicate)
	}
}

// sigstoreJS is the SHA-512 hash of that release.
const sigstoreJS = "46d4e2f74c4877316640000a6fdf8a8b59f1e0847667973e9859f774dd31b8f1" +
	"e0937813b777fb66a2ac67d50540fe34640966eee9fc2ccca387082b4c85cd3c"

// Invalid material of a user verifies nothing, and results in an error.
func TestMaterial(t *testing.T) {
	s := newSigstore(t)
	key := publicPEM(t, s.newKey())
	identity := []reader.Identity{{Issuer: issuer, Subject: subject}}
	for name, c := range map[string]struct {
		authority reader.Authority
		want      string
	}{
		"nothing":                     {reader.Authority{}, "it has neither keys nor identities"},
		"no PEM":                      {reader.Authority{Keys: []string{"key"}}, "its public key can't be read: "},
		"one of two keys is no PEM":   {reader.Authority{Keys: []string{key, "key"}}, "its public key can't be read: "},
		"no JSON":                     {reader.Authority{Keys: []string{key}, TrustedRoot: "{"}, "its trusted root can't be read: "},
		"another kind of JSON":        {reader.Authority{Keys: []string{key}, TrustedRoot: "{}"}, "its trusted root can't be read: "},
		"root without use for a key":  {reader.Authority{Keys: []string{key}, TrustedRoot: s.root("ca")}, "its trusted root has neither a transparency log nor a timestamp authority"},
		"identities without a root":   {reader.Authority{Identities: identity}, "its trusted root has no certificate authority"},
		"root without an authority":   {reader.Authority{Identities: identity, TrustedRoot: s.root("log", "tsa")}, "its trusted root has no certificate authority"},
		"root without proof of time":  {reader.Authority{Identities: identity, TrustedRoot: s.root("ca", "ct")}, "its trusted root has neither a transparency log nor a timestamp authority, to prove when"},
		"pattern that doesn't parse":  {reader.Authority{Identities: []reader.Identity{{Issuer: issuer, SubjectPattern: "("}}, TrustedRoot: s.root("ca", "log")}, "its identity ( (https://issuer.example) can't be used: "},
		"identity without an issuer":  {reader.Authority{Identities: []reader.Identity{{Subject: subject}}, TrustedRoot: s.root("ca", "log")}, "its identity " + subject + " () can't be used: "},
		"identity without a subject":  {reader.Authority{Identities: []reader.Identity{{Issuer: issuer}}, TrustedRoot: s.root("ca", "log")}, "its identity  (https://issuer.example) can't be used: "},
		"a certificate for a key":     {reader.Authority{Keys: []string{strings.ReplaceAll(key, "PUBLIC KEY", "CERTIFICATE")}}, "its public key can't be read: "},
		"a private key for a key":     {reader.Authority{Keys: []string{strings.ReplaceAll(key, "PUBLIC", "PRIVATE")}}, "its public key can't be read: "},
		"keys and identities, no key": {reader.Authority{Identities: identity, Keys: []string{"x"}, TrustedRoot: s.root("log")}, "its trusted root has no certificate authority"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewAuthority(c.authority); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
