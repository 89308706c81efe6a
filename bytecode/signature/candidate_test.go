// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package signature

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// For anything that isn't a signature, the error is stable, because it is used in
// conditions of objects.
func TestNoCandidates(t *testing.T) {
	s := newSigstore(t)
	layer, content := s.sign(digest(t, "a"), signing{key: s.newKey(), predicate: PredicateType, old: true})
	with := func(annotation, value string) v1.Descriptor {
		d := layer
		d.Annotations = maps.Clone(layer.Annotations)
		d.Annotations[annotation] = value
		return d
	}
	of := func(kind string) v1.Descriptor { return v1.Descriptor{MediaType: types.MediaType(kind)} }
	for name, c := range map[string]struct {
		layer   v1.Descriptor
		content string
		want    string
	}{
		"another kind":                   {of("text/html"), "", `of an unknown kind, "text/html"`},
		"simple signing, no annotations": {of(SimpleSigning), string(content), "without a signature"},
		"simple signing, no base64":      {with(annotationSignature, "!"), string(content), "without a signature"},
		"certificate":                    {with(annotationCertificate, "x"), string(content), "with a certificate that is not PEM"},
		"log's entry, no JSON":           {with(annotationBundle, "x"), string(content), "with a log entry that can't be read"},
		"log's entry, empty":             {with(annotationBundle, "{}"), string(content), "with a log entry that can't be read"},
		"log's entry, ID":                {with(annotationBundle, `{"Payload": {"logID": "x"}}`), string(content), "with a log entry that can't be read"},
		"log's entry, of another kind":   {with(annotationBundle, `{"Payload": {"body": "e30=", "logID": "aa"}}`), string(content), "not a Sigstore bundle that can be read"},
		"timestamp":                      {with(annotationTimestamp, "x"), string(content), "with a timestamp that can't be read"},
		"bundle, no JSON":                {of(BundlePrefix + ".v0.3+json"), "{", "not a Sigstore bundle that can be read"},
		"bundle, empty":                  {of(BundlePrefix + ".v0.3+json"), "{}", "not a Sigstore bundle that can be read"},
		"envelope, no JSON":              {of(Envelope), "{", "not an envelope that can be read"},
		"envelope, payload":              {of(Envelope), `{"payload": "!"}`, "not an envelope that can be read"},
		"envelope, signature":            {of(Envelope), `{"payload": "e30=", "signatures": [{"sig": "!"}]}`, "not an envelope that can be read"},
		"envelope, no statement":         {of(Envelope), `{"payload": "eA==", "signatures": []}`, "without a statement"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(c.layer, []byte(c.content)); err == nil || err.Error() != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A key can also sign other statements than cosign's. Such a signature isn't a signature
// of the image.
func TestNames(t *testing.T) {
	image := digest(t, "a")
	for content, want := range map[string]bool{
		string(simple(image)):          true,
		string(simple(digest(t, "b"))): false,
		`{}`:                           false,
		`{`:                            false,
		`{"critical": {"image": {"docker-manifest-digest": "` + image.String() + `"}}}`:                                       false,
		`{"critical": {"type": "atomic container signature", "image": {"docker-manifest-digest": "` + image.String() + `"}}}`: false,
	} {
		if got := names([]byte(content), []v1.Hash{digest(t, "c"), image}); got != want {
			t.Errorf("%s: %v", content, got)
		}
	}
}

// For any content of a registry, parsing ends, the content isn't valid for an authority
// that hasn't signed it, and the error is suitable for a condition.
func FuzzParse(f *testing.F) {
	s := newSigstore(f)
	image := digest(f, "a")
	for _, how := range []signing{
		{key: s.newKey(), predicate: PredicateType},
		{key: s.newKey(), predicate: PredicateType, old: true, stamped: true},
		{subject: subject, issuer: issuer, predicate: PredicateType, logged: true, stamped: true},
		{subject: subject, issuer: issuer, predicate: PredicateType, old: true, stamped: true},
	} {
		layer, content := s.sign(image, how)
		annotations, err := json.Marshal(layer.Annotations)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(layer.MediaType), annotations, content)
	}
	f.Add(Envelope, []byte(`{"predicateType": "x"}`), []byte(`{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AA=="}]}`))
	entity, err := s.log.SignAtTime(subject, issuer, simple(image), used)
	if err != nil {
		f.Fatal(err)
	}
	annotations, err := json.Marshal(s.annotated(entity).Annotations)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(SimpleSigning, annotations, simple(image))
	another := newSigstore(f)
	var authorities []*Authority
	for _, a := range []reader.Authority{
		{Keys: []string{publicPEM(f, another.newKey())}},
		{Keys: []string{publicPEM(f, another.newKey())}, TrustedRoot: s.root("log", "tsa")},
		{Identities: []reader.Identity{{Issuer: "https://none.example", Subject: "none"}}, TrustedRoot: s.root("ca", "log", "tsa")},
		{Identities: []reader.Identity{{IssuerPattern: ".*", SubjectPattern: ".*"}}, TrustedRoot: another.root("ca", "ct", "tsa")},
	} {
		authority, err := NewAuthority(a)
		if err != nil {
			f.Fatal(err)
		}
		authorities = append(authorities, authority)
	}
	f.Fuzz(func(t *testing.T, kind string, annotations, content []byte) {
		layer := v1.Descriptor{MediaType: types.MediaType(kind)}
		if json.Unmarshal(annotations, &layer.Annotations) != nil {
			return
		}
		candidate, err := Parse(layer, content)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("refused with %q", err)
			}
			return
		}
		for _, authority := range authorities {
			if signer, err := authority.Verify(candidate, []v1.Hash{image}); err == nil {
				t.Errorf("signed by %q", signer)
			}
		}
	})
}
