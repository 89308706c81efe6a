// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// The default items of a reference that doesn't name an item.
const (
	publicKeySuffix  = ".pub"
	trustedRootsItem = "trusted_root.json"
)

// Material is what is needed to verify signatures of an authority.
type Material struct {
	// Keys are public keys, with one PEM block each.
	Keys []string
	// TrustedRoot is Sigstore's JSON. It is empty if the authority doesn't refer to a
	// trusted root.
	TrustedRoot string
	// Err is the reason why the material can't be used.
	Err error
	// Unknown means that the Secret or ConfigMap can exist, but wasn't returned, so that the material might be good.
	Unknown bool
}

// Keep replaces what isn't known of the material of a policy's authorities by what was known before.
func Keep(now, before map[string]Material) {
	for name, m := range now {
		if former, known := before[name]; m.Unknown && known && former.Err == nil {
			now[name] = former
		}
	}
}

// Digest returns a hash of the material, sha256:…, for the status of policies. It is
// empty if the material can't be used.
func (m Material) Digest() string {
	if m.Err != nil {
		return ""
	}
	content, _ := json.Marshal([]any{m.Keys, m.TrustedRoot}) //nolint:errchkjson // strings always encode
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Reader reads the data of the Secrets and ConfigMaps that authorities refer to, in the
// namespace where bpfman runs. Users see the text of its errors.
type Reader struct {
	Secret    func(name string) (map[string][]byte, error)
	ConfigMap func(name string) (map[string]string, error)
}

// ReadMaterial reads the material of all authorities of a policy, by the names of the
// authorities. If something can't be read or parsed, the Material contains the error.
func ReadMaterial(p *v1alpha1.BytecodePolicy, from Reader) map[string]Material {
	all := make(map[string]Material, len(p.Spec.Authorities))
	for i := range p.Spec.Authorities {
		authority := &p.Spec.Authorities[i]
		m, err := read(authority, from)
		if err != nil {
			unread := (*unreadError)(nil)
			m = Material{Err: err, Unknown: errors.As(err, &unread) && !apierrors.IsNotFound(err)}
		}
		all[authority.Name] = m
	}
	return all
}

// References returns the names of the Secrets and ConfigMaps that a policy refers to,
// without duplicates. Callers watch them.
func References(p *v1alpha1.BytecodePolicy) (secrets, configMaps []string) {
	for _, a := range p.Spec.Authorities {
		if a.Key != nil && a.Key.Secret != nil {
			secrets = append(secrets, a.Key.Secret.Name)
		}
		if root := trustedRoot(&a); root != nil {
			configMaps = append(configMaps, root.Name)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(secrets))), slices.Compact(slices.Sorted(slices.Values(configMaps)))
}

func trustedRoot(a *v1alpha1.BytecodeAuthority) *v1alpha1.AuthorityReference {
	switch {
	case a.Keyless != nil:
		return &a.Keyless.TrustedRoot
	case a.Key != nil:
		return a.Key.TrustedRoot
	}
	return nil
}

func read(a *v1alpha1.BytecodeAuthority, from Reader) (Material, error) {
	var m Material
	var err error
	switch {
	case a.Key == nil && a.Keyless == nil:
		return m, problem.Errorf(problem.AuthorityIncomplete, "it has neither key nor keyless")
	case a.Key != nil && a.Key.Secret != nil:
		m.Keys, err = secretKeys(*a.Key.Secret, from)
	case a.Key != nil:
		if m.Keys, err = parseKeys([]byte(a.Key.PEM)); err != nil {
			err = problem.Errorf(problem.KeyUnusable, "key.pem: %w", err)
		}
	}
	if err != nil {
		return m, err
	}
	if root := trustedRoot(a); root != nil {
		m.TrustedRoot, err = readTrustedRoot(*root, from)
	}
	return m, err
}

// unreadError means that the API server didn't return an object. Only NotFound says something about it.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

func secretKeys(ref v1alpha1.AuthorityReference, from Reader) ([]string, error) {
	data, err := from.Secret(ref.Name)
	if err != nil {
		return nil, &unreadError{problem.Errorf(problem.KeyUnusable, "read Secret %s: %w", ref.Name, err)}
	}
	items := []string{ref.Key}
	if ref.Key == "" {
		items = slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(item string) bool { return !strings.HasSuffix(item, publicKeySuffix) })
	} else if _, found := data[ref.Key]; !found {
		return nil, problem.Errorf(problem.KeyUnusable, "no key %s in Secret %s", ref.Key, ref.Name)
	}
	if len(items) == 0 {
		return nil, problem.Errorf(problem.KeyUnusable, "no key whose name ends in %s in Secret %s", publicKeySuffix, ref.Name)
	}
	var keys []string
	for _, item := range items {
		found, err := parseKeys(data[item])
		if err != nil {
			return nil, problem.Errorf(problem.KeyUnusable, "key %s of Secret %s: %w", item, ref.Name, err)
		}
		keys = append(keys, found...)
	}
	return keys, nil
}

// parseKeys splits PEM into one block for each public key. Its errors don't contain any
// of the content, because that could be a private key.
func parseKeys(text []byte) ([]string, error) {
	var keys []string
	for rest := bytes.TrimSpace(text); len(rest) > 0; {
		block, after := pem.Decode(rest)
		if block == nil {
			return nil, errors.New("it isn't a public key in PEM format")
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("it has a PEM block of type %q instead of PUBLIC KEY", block.Type)
		}
		if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		keys = append(keys, string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})))
		rest = bytes.TrimSpace(after)
	}
	if len(keys) == 0 {
		return nil, errors.New("it isn't a public key in PEM format")
	}
	return keys, nil
}

func readTrustedRoot(ref v1alpha1.AuthorityReference, from Reader) (string, error) {
	data, err := from.ConfigMap(ref.Name)
	if err != nil {
		return "", &unreadError{problem.Errorf(problem.TrustedRootUnusable, "read ConfigMap %s: %w", ref.Name, err)}
	}
	item := cmp.Or(ref.Key, trustedRootsItem)
	root, found := data[item]
	if !found {
		return "", problem.Errorf(problem.TrustedRootUnusable, "no key %s in ConfigMap %s", item, ref.Name)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(root), &object); err != nil {
		return "", problem.Errorf(problem.TrustedRootUnusable, "key %s of ConfigMap %s isn't a trusted root in JSON: %w", item, ref.Name, err)
	}
	if len(object) == 0 {
		return "", problem.Errorf(problem.TrustedRootUnusable, "key %s of ConfigMap %s is an empty trusted root", item, ref.Name)
	}
	return root, nil
}
