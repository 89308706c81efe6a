// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// publicKey returns a key in PEM, a different one for each seed.
func publicKey(t *testing.T, seed byte) string {
	t.Helper()
	public := ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize)).Public()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestReadMaterial(t *testing.T) {
	one, two := publicKey(t, 1), publicKey(t, 2)
	private := "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
	root := `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`
	reader := Reader{
		Secret: func(name string) (map[string][]byte, error) {
			return map[string]map[string][]byte{
				"cosign":  {"cosign.key": []byte(private), "cosign.password": []byte("x"), "cosign.pub": []byte(one)},
				"rotated": {"new.pub": []byte(two), "old.pub": []byte(one)},
				"private": {"cosign.pub": []byte(private)},
				"empty":   {"cosign.key": []byte(private)},
				"half":    {"a.pub": []byte(one), "b.pub": []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")},
			}[name], nilOr(name == "gone", errors.New(`secrets "gone" not found`))
		},
		ConfigMap: func(name string) (map[string]string, error) {
			return map[string]map[string]string{
				"sigstore": {"trusted_root.json": root, "other.json": `{"a":1}`, "wrong": "{", "null": "null", "list": "[]"},
			}[name], nilOr(name == "gone", errors.New(`configmaps "gone" not found`))
		},
	}
	key := func(k v1alpha1.AuthorityKey) v1alpha1.BytecodeAuthority {
		return v1alpha1.BytecodeAuthority{Name: "a", Key: &k}
	}
	secret := func(name, item string) v1alpha1.BytecodeAuthority {
		return key(v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: name, Key: item}})
	}
	keyless := func(name, item string) v1alpha1.BytecodeAuthority {
		return v1alpha1.BytecodeAuthority{Name: "a", Keyless: &v1alpha1.AuthorityKeyless{TrustedRoot: v1alpha1.AuthorityReference{Name: name, Key: item}}}
	}
	for name, test := range map[string]struct {
		authority v1alpha1.BytecodeAuthority
		keys      []string
		root, err string
	}{
		"inline":               {key(v1alpha1.AuthorityKey{PEM: one}), []string{one}, "", ""},
		"inline, two":          {key(v1alpha1.AuthorityKey{PEM: "comment\n" + one + "\n\n" + two}), []string{one, two}, "", ""},
		"inline, none":         {key(v1alpha1.AuthorityKey{PEM: "nonsense"}), nil, "", "key.pem: it isn't a public key in PEM format"},
		"inline, and more":     {key(v1alpha1.AuthorityKey{PEM: one + "nonsense"}), nil, "", "key.pem: it isn't a public key in PEM format"},
		"inline, private":      {key(v1alpha1.AuthorityKey{PEM: private}), nil, "", `key.pem: it has a PEM block of type "PRIVATE KEY" instead of PUBLIC KEY`},
		"cosign's Secret":      {secret("cosign", ""), []string{one}, "", ""},
		"rotated":              {secret("rotated", ""), []string{two, one}, "", ""},
		"one item":             {secret("rotated", "old.pub"), []string{one}, "", ""},
		"no such item":         {secret("rotated", "cosign.pub"), nil, "", "no key cosign.pub in Secret rotated"},
		"no public key":        {secret("empty", ""), nil, "", "no key whose name ends in .pub in Secret empty"},
		"private by mistake":   {secret("private", ""), nil, "", `key cosign.pub of Secret private: it has a PEM block of type "PRIVATE KEY"`},
		"one of two is wrong":  {secret("half", ""), nil, "", "key b.pub of Secret half: read public key:"},
		"no Secret":            {secret("gone", ""), nil, "", `read Secret gone: secrets "gone" not found`},
		"key and trusted root": {key(v1alpha1.AuthorityKey{PEM: one, TrustedRoot: &v1alpha1.AuthorityReference{Name: "sigstore"}}), []string{one}, root, ""},
		"keyless":              {keyless("sigstore", ""), nil, root, ""},
		"keyless, by item":     {keyless("sigstore", "other.json"), nil, `{"a":1}`, ""},
		"no such root":         {keyless("sigstore", "x"), nil, "", "no key x in ConfigMap sigstore"},
		"no JSON":              {keyless("sigstore", "wrong"), nil, "", "key wrong of ConfigMap sigstore isn't a trusted root in JSON"},
		"null":                 {keyless("sigstore", "null"), nil, "", "key null of ConfigMap sigstore is an empty trusted root"},
		"a list":               {keyless("sigstore", "list"), nil, "", "key list of ConfigMap sigstore isn't a trusted root in JSON"},
		"no ConfigMap":         {keyless("gone", ""), nil, "", `read ConfigMap gone: configmaps "gone" not found`},
		"neither":              {v1alpha1.BytecodeAuthority{Name: "a"}, nil, "", "it has neither key nor keyless"},
	} {
		m := ReadMaterial(policyOf("p", v1alpha1.BytecodePolicySpec{Authorities: []v1alpha1.BytecodeAuthority{test.authority}}), reader)["a"]
		if (m.Err == nil) != (test.err == "") || m.Err != nil && !strings.HasPrefix(m.Err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", name, m.Err, test.err)
			continue
		}
		if m.Err != nil && problem.Of(m.Err) == "" {
			t.Errorf("%s: %v names no problem", name, m.Err)
		}
		if !slices.Equal(m.Keys, test.keys) || m.TrustedRoot != test.root || (m.Digest() == "") != (test.err != "") {
			t.Errorf("%s: %+v, digest %q", name, m, m.Digest())
		}
		if m.Err != nil && strings.Contains(m.Err.Error(), "c2VjcmV0") {
			t.Errorf("%s: the error shows a private key: %v", name, m.Err)
		}
	}
}

func nilOr(fails bool, err error) error {
	if fails {
		return err
	}
	return nil
}

// The digest depends on everything that verification depends on, and on nothing else.
func TestMaterialDigests(t *testing.T) {
	seen := map[string]Material{}
	for _, m := range []Material{
		{Keys: []string{"a"}}, {Keys: []string{"b"}}, {Keys: []string{"a", "b"}}, {Keys: []string{"ab"}}, {Keys: []string{"a"}, TrustedRoot: "b"}, {TrustedRoot: "ab"}, {},
	} {
		d := m.Digest()
		if other, found := seen[d]; found || !strings.HasPrefix(d, "sha256:") || d != m.Digest() {
			t.Errorf("%+v and %+v have the digest %s", m, other, d)
		}
		seen[d] = m
	}
}

func TestReferences(t *testing.T) {
	named := func(name string) *v1alpha1.AuthorityReference { return &v1alpha1.AuthorityReference{Name: name} }
	secrets, configMaps := References(policyOf("p", v1alpha1.BytecodePolicySpec{Authorities: []v1alpha1.BytecodeAuthority{
		{Name: "a", Key: &v1alpha1.AuthorityKey{Secret: named("s2"), TrustedRoot: named("r")}},
		{Name: "b", Key: &v1alpha1.AuthorityKey{Secret: named("s1")}},
		{Name: "c", Key: &v1alpha1.AuthorityKey{Secret: named("s2")}},
		{Name: "d", Key: &v1alpha1.AuthorityKey{PEM: "k"}},
		{Name: "e", Keyless: &v1alpha1.AuthorityKeyless{TrustedRoot: *named("r")}},
		{Name: "f"},
	}}))
	if !slices.Equal(secrets, []string{"s1", "s2"}) || !slices.Equal(configMaps, []string{"r"}) {
		t.Errorf("%v, %v", secrets, configMaps)
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n")
	f.Add("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text))
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			if again, err := parseKeys([]byte(key)); err != nil || !slices.Equal(again, []string{key}) {
				t.Errorf("%q becomes %q, %v", key, again, err)
			}
		}
	})
}
