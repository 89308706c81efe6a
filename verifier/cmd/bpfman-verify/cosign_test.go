// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/apis/verification"
)

// signer is a key pair of cosign's, in files, and cosign itself: COSIGN says
// where it is, which `make test-verify` builds.
type signer struct {
	t           *testing.T
	key, public string
	// PEM is the public key, Fingerprint what it is known by.
	PEM string
}

func cosignPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("COSIGN")
	if path == "" {
		t.Skip("COSIGN doesn't say where cosign is: make test-verify")
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
	pem, err := os.ReadFile(prefix + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t: t, key: prefix + ".key", public: prefix + ".pub", PEM: string(pem)}
}

// offline keeps cosign from Sigstore's public services.
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

func (s *signer) authority() verification.Authority {
	return verification.Authority{Name: "policy/release", Keys: []string{s.PEM}}
}

// forms are those in which cosign signs.
var forms = map[string]struct {
	referrers bool // the registry has the API
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
	right, wrong := newSigner(t), newSigner(t)
	for form, c := range forms {
		t.Run(form, func(t *testing.T) {
			t.Setenv("COSIGN_EXPERIMENTAL", "1")
			r := newRegistry(t, c.referrers)
			signed, unsigned := r.push("signed"), r.push("unsigned")
			(&signer{t: t, key: right.key}).sign(signed, c.flags...)
			got := ask(t, verification.Request{Image: signed, Authorities: []verification.Authority{right.authority()}})
			if len(got.Signatures) != 1 || !strings.HasPrefix(got.Signatures[0].Signer, "SHA256:") {
				t.Errorf("signed: %+v", got)
			}
			got = ask(t, verification.Request{Image: signed, Authorities: []verification.Authority{wrong.authority()}})
			if len(got.Signatures) != 1 || got.Signatures[0].Reason != "the only signature that was found is not made with its keys" {
				t.Errorf("by another key: %+v", got)
			}
			got = ask(t, verification.Request{Image: unsigned, Authorities: []verification.Authority{right.authority()}})
			if len(got.Signatures) != 1 || got.Signatures[0].Reason != "no signature was found" {
				t.Errorf("unsigned: %+v", got)
			}
		})
	}
}

var _ = remote.Delete
