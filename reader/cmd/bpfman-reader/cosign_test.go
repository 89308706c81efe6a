// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// signer is a key pair of cosign, with the private key in a file, and the public key in
// PEM.
type signer struct {
	t   *testing.T
	key string
	PEM string
}

// cosignPath returns the path of cosign, which `make test-reader` builds.
func cosignPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("COSIGN")
	if path == "" {
		prerequisite.Missing(t, "COSIGN doesn't say where it is: run `make test-reader`", prerequisite.Cosign)
	}
	return path
}

func cosign(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), cosignPath(t), arguments...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+command.Dir, "SSL_CERT_FILE="+certificates)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cosign %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "cosign")
	cosign(t, "generate-key-pair", "--output-key-prefix", prefix)
	public, err := os.ReadFile(prefix + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t: t, key: prefix + ".key", PEM: string(public)}
}

// offline prevents cosign from using Sigstore's public services.
var offline = []string{"--yes", "--tlog-upload=false", "--use-signing-config=false"}

func (s *signer) sign(image string, flags ...string) {
	s.t.Helper()
	cosign(s.t, append(append([]string{"sign", "--key", s.key}, offline...), append(flags, image)...)...)
}

func (s *signer) attest(image, predicate string, flags ...string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "predicate.json")
	if err := os.WriteFile(file, []byte(`{"buildDefinition": {}}`), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cosign(s.t, append(append([]string{"attest", "--key", s.key, "--type", predicate, "--predicate", file}, offline...), append(flags, image)...)...)
}

func (s *signer) authority() reader.Authority {
	return reader.Authority{Name: "policy/release", Keys: []string{s.PEM}}
}

// forms are the formats in which cosign signs.
var forms = map[string]struct {
	referrers bool // the registry has the referrers API
	flags     []string
}{
	"bundle as a referrer":          {true, nil},
	"bundle under a referrers tag":  {false, nil},
	"simple signing under a tag":    {true, []string{"--new-bundle-format=false"}},
	"simple signing, old registry":  {false, []string{"--new-bundle-format=false"}},
	"simple signing as a referrer":  {true, []string{"--new-bundle-format=false", "--registry-referrers-mode=oci-1-1"}},
	"simple signing, referrers tag": {false, []string{"--new-bundle-format=false", "--registry-referrers-mode=oci-1-1"}},
}

func TestCosignSigns(t *testing.T) {
	cosignPath(t)
	t.Setenv("COSIGN_EXPERIMENTAL", "1")
	right, wrong := newSigner(t), newSigner(t)
	for form, c := range forms {
		t.Run(form, func(t *testing.T) {
			r := newRegistry(t, c.referrers)
			signed, unsigned := r.push("signed"), r.push("unsigned")
			right.in(t).sign(signed, c.flags...)
			right.in(t).counts(t, reader.Request{Image: signed})
			right.in(t).refused(t, reader.Request{Image: unsigned}, "no signature was found")
			wrong.in(t).refused(t, reader.Request{Image: signed}, "the only signature that was found is not made with the authority's keys")

			r.copy(signed, unsigned)
			right.in(t).refused(t, reader.Request{Image: unsigned}, "the only signature that was found is of another image")

			rotated := reader.Request{Image: signed, Authorities: []reader.Authority{
				{Name: "policy/rotated", Keys: []string{wrong.PEM, right.PEM}},
			}}
			if got := ask(t, rotated); len(got.Signatures) != 1 || got.Signatures[0].Signer != right.fingerprint(t) {
				t.Errorf("with the new key and the old: %+v", got)
			}
			wrong.in(t).sign(signed, c.flags...)
			wrong.in(t).counts(t, reader.Request{Image: signed})
			right.in(t).counts(t, reader.Request{Image: signed})

			r.strip(signed)
			right.in(t).refused(t, reader.Request{Image: signed}, "no signature was found")
		})
	}
}

// The signature of an index is valid for the images in it. A signature of the loaded
// image alone is also valid, but not for the other images.
func TestCosignSignsAnIndex(t *testing.T) {
	cosignPath(t)
	t.Setenv("COSIGN_EXPERIMENTAL", "1")
	s := newSigner(t)
	for form, c := range forms {
		t.Run(form, func(t *testing.T) {
			r := newRegistry(t, c.referrers)
			index, parts := r.pushIndex("amd64", "arm64")
			s.in(t).refused(t, reader.Request{Image: index}, "no signature was found")
			s.in(t).sign(r.reference("@"+parts[1].String()).String(), c.flags...)
			s.in(t).refused(t, reader.Request{Image: index}, "no signature was found")
			s.in(t).sign(r.reference("@"+parts[0].String()).String(), c.flags...)
			s.in(t).counts(t, reader.Request{Image: index})
			index, _ = r.pushIndex("amd64 as well", "arm64 as well")
			s.in(t).sign(index, c.flags...)
			s.in(t).counts(t, reader.Request{Image: index})
		})
	}
}

// An attestation is valid according to its type, its signer, and its image. It isn't a
// signature of the image.
func TestCosignAttests(t *testing.T) {
	cosignPath(t)
	const provenance, other = "https://slsa.dev/provenance/v1", "https://example.com/tested/v1"
	right, wrong := newSigner(t), newSigner(t)
	for form, c := range map[string]struct {
		referrers bool
		flags     []string
	}{
		"bundle as a referrer":         {true, nil},
		"bundle under a referrers tag": {false, nil},
		"envelope under a tag":         {true, []string{"--new-bundle-format=false"}},
	} {
		t.Run(form, func(t *testing.T) {
			r := newRegistry(t, c.referrers)
			attested, another := r.push("attested"), r.push("another")
			right.in(t).attest(attested, "slsaprovenance1", c.flags...)
			asked := func(image, predicate string, by *signer) reader.Finding {
				got := ask(t, reader.Request{
					Image: image, Authorities: []reader.Authority{by.authority()},
					Attestations: []reader.Attestation{{PredicateType: predicate, Authorities: []string{"policy/release"}}},
				})
				if len(got.Signatures) != 1 || got.Signatures[0].Signer != "" {
					t.Errorf("an attestation is a signature: %+v", got)
				}
				if len(got.Attestations) != 1 || got.Attestations[0].PredicateType != predicate {
					t.Fatalf("%+v", got)
				}
				return got.Attestations[0]
			}
			if got := asked(attested, provenance, right); got.Signer != right.fingerprint(t) || got.Reason != "" {
				t.Errorf("attested: %+v", got)
			}
			if got := asked(attested, provenance, wrong); got.Reason != "the only attestation that was found is not made with the authority's keys" {
				t.Errorf("by another key: %+v", got)
			}
			if got := asked(attested, other, right); got.Reason != "no attestation of type "+other+" was found" {
				t.Errorf("of another type: %+v", got)
			}
			if got := asked(another, provenance, right); got.Reason != "no attestation of type "+provenance+" was found" {
				t.Errorf("not attested: %+v", got)
			}
			r.copy(attested, another)
			if got := asked(another, provenance, right); got.Reason != "the only attestation that was found is of another image" {
				t.Errorf("of another image: %+v", got)
			}
		})
	}
}

// in returns the signer for another test.
func (s *signer) in(t *testing.T) *signer {
	t.Helper()
	return &signer{t: t, key: s.key, PEM: s.PEM}
}

// fingerprint returns the fingerprint of the key according to openssl and sha256sum.
func (s *signer) fingerprint(t *testing.T) string {
	t.Helper()
	block, _ := pem.Decode([]byte(s.PEM))
	if block == nil {
		t.Fatal("no PEM")
	}
	sum := sha256.Sum256(block.Bytes)
	return "SHA256:" + hex.EncodeToString(sum[:])
}

func (s *signer) counts(t *testing.T, request reader.Request) {
	t.Helper()
	request.Authorities = []reader.Authority{s.authority()}
	want := reader.Finding{Authority: "policy/release", Signer: s.fingerprint(t)}
	if got := ask(t, request); len(got.Signatures) != 1 || got.Signatures[0] != want {
		t.Errorf("%+v", got)
	}
}

func (s *signer) refused(t *testing.T, request reader.Request, reason string) {
	t.Helper()
	request.Authorities = []reader.Authority{s.authority()}
	want := reader.Finding{Authority: "policy/release", Reason: reason}
	if got := ask(t, request); len(got.Signatures) != 1 || got.Signatures[0] != want {
		t.Errorf("%+v, want %q", got, reason)
	}
}
