// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"errors"
	"strings"
	"testing"
)

var (
	digest  = "sha256:" + strings.Repeat("a", 64)
	another = "sha256:" + strings.Repeat("b", 64)
)

const (
	wellFormed = `{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {"digest": "A"}, "layers": [` + oneLayer + `]}`
	oneLayer   = `{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "A", "size": 5}`
	wholeIndex = `{"schemaVersion": 2, "manifests": [` + amd64 + `, {"digest": "B", "size": 1, "platform": {"os": "linux", "architecture": "arm64"}}, {"digest": "B", "platform": {"os": "unknown", "architecture": "unknown"}}]}`
	amd64      = `{"digest": "A", "size": 7, "platform": {"os": "linux", "architecture": "amd64"}}`
)

func parsed(text string) (*Document, error) {
	return Parse([]byte(strings.NewReplacer(`"A"`, `"`+digest+`"`, `"B"`, `"`+another+`"`).Replace(text)))
}

func TestParse(t *testing.T) {
	for _, text := range []string{
		wellFormed,
		strings.Replace(wellFormed, `"mediaType": "application/vnd.oci.image.manifest.v1+json", `, "", 1),
		strings.NewReplacer("vnd.oci.image.manifest.v1", "vnd.docker.distribution.manifest.v2", "vnd.oci.image.layer.v1.tar+gzip", "vnd.docker.image.rootfs.diff.tar.gzip").Replace(wellFormed),
	} {
		d, err := parsed(text)
		if err != nil || d.Layer == nil || *d.Layer != (Descriptor{Digest: digest, Size: 5}) {
			t.Errorf("%+v, %v", d, err)
		}
	}
	index, err := parsed(wholeIndex)
	if err != nil || index.Layer != nil {
		t.Fatalf("%+v, %v", index, err)
	}
	if part, err := index.For("arm64"); err != nil || part.Digest != another {
		t.Errorf("%+v, %v", part, err)
	}
	if _, err := index.For("s390x"); err == nil || err.Error() != "it has no manifest for linux/s390x" {
		t.Error(err)
	}
	twice, err := parsed(strings.Replace(wholeIndex, amd64, amd64+","+amd64, 1))
	if err != nil {
		t.Fatal(err)
	}
	if part, err := twice.For("amd64"); err != nil || part.Digest != digest {
		t.Errorf("%+v, %v", part, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for message, text := range map[string]string{
		"isn't valid JSON":           `{`,
		"has a member twice":         strings.Replace(wellFormed, `"layers"`, `"LAYERS": [], "layers"`, 1),
		"schema version 1":           strings.Replace(wellFormed, "2", "1", 1),
		"both layers and manifests":  strings.Replace(wellFormed, `"layers"`, `"manifests": [`+amd64+`], "layers"`, 1),
		`media type "\u202e"`:        `{"schemaVersion": 2, "mediaType": "\u202e"}`,
		"refers to manifests":        strings.Replace(wellFormed, `"layers": [`+oneLayer+`]`, `"manifests": [`+amd64+`]`, 1),
		"has 0 layers":               strings.Replace(wellFormed, oneLayer, "", 1),
		"has 2 layers":               strings.Replace(wellFormed, oneLayer, oneLayer+","+oneLayer, 1),
		"digest of its config":       strings.Replace(wellFormed, `"config": {"digest": "A"}`, `"config": {}`, 1),
		`+zstd" instead of`:          strings.Replace(wellFormed, "+gzip", "+zstd", 1),
		"URLs outside":               strings.Replace(wellFormed, `"size"`, `"urls": ["https://elsewhere.example"], "size"`, 1),
		"embedded in the manifest":   strings.Replace(wellFormed, `"size"`, `"data": "AAAA", "size"`, 1),
		"digest of its layer":        strings.Replace(wellFormed, `"digest": "A", "size"`, `"digest": "sha512:00", "size"`, 1),
		"the limit is 32 MiB":        strings.Replace(wellFormed, `"size": 5`, `"size": 33554433`, 1),
		"its layer has -1 bytes":     strings.Replace(wellFormed, `"size": 5`, `"size": -1`, 1),
		"a digest in its index, \"A": strings.Replace(wholeIndex, `"digest": "B"`, `"digest": "A\u0000"`, 1),
	} {
		_, err := parsed(text)
		if unfit, ok := errors.AsType[*UnfitError](err); !ok || !strings.Contains(unfit.Text, message) {
			t.Errorf("%v, want %q", err, message)
		}
	}
	two, err := parsed(strings.Replace(wholeIndex, "arm64", "amd64", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.For("amd64"); err == nil || err.Error() != "its index has two different manifests for linux/amd64" {
		t.Error(err)
	}
	if _, err := ParsePart(Descriptor{Digest: digest, Size: 5}, []byte("{}")); err == nil || !strings.Contains(err.Error(), "has 5 bytes, but it has 2") {
		t.Error(err)
	}
	if _, err := ParsePart(Descriptor{Digest: digest, Size: int64(len(wholeIndex))}, []byte(strings.ReplaceAll(wholeIndex, `"A"`, `"A"`))); err == nil {
		t.Error("no error")
	}
	if err := (&Descriptor{Size: 1}).Check(nil); err == nil {
		t.Error("no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(wellFormed), "amd64")
	f.Add([]byte(wholeIndex), "amd64")
	f.Fuzz(func(t *testing.T, text []byte, architecture string) {
		d, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 600 {
				t.Error(err)
			}
			return
		}
		if part, err := d.For(architecture); err == nil && !sha256Digest.MatchString(part.Digest) || d.Layer != nil && !sha256Digest.MatchString(d.Layer.Digest) {
			t.Errorf("%+v", d)
		}
	})
}
