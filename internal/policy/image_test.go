// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"strings"
	"testing"

	"github.com/distribution/reference"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const digest = "sha256:3d0dd7b4a8b1c9e5f6a7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3"

func byURL(url string) v1alpha1.BytecodeSelector {
	return v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: url}}
}

func TestParseImage(t *testing.T) {
	for url, want := range map[string]string{
		"quay.io/acme/xdp-pass":              "quay.io/acme/xdp-pass:latest",
		"quay.io/acme/xdp-pass:v1":           "quay.io/acme/xdp-pass:v1",
		"quay.io/acme/xdp-pass@" + digest:    "quay.io/acme/xdp-pass@" + digest,
		"quay.io/acme/xdp-pass:v1@" + digest: "quay.io/acme/xdp-pass@" + digest,
		"busybox":                            "docker.io/library/busybox:latest",
		"acme/xdp":                           "docker.io/acme/xdp:latest",
		"docker.io/busybox:1":                "docker.io/library/busybox:1",
		"index.docker.io/busybox":            "docker.io/library/busybox:latest",
		"DOCKER.io/busybox":                  "docker.io/library/busybox:latest",
		"Index.Docker.IO/busybox":            "docker.io/library/busybox:latest",
		"docker.io:443/busybox":              "docker.io/library/busybox:latest",
		"QUAY.io/acme/xdp":                   "quay.io/acme/xdp:latest",
		"quay.io:443/acme/xdp":               "quay.io/acme/xdp:latest",
		"quay.io:4443/acme/xdp":              "quay.io:4443/acme/xdp:latest",
		"localhost/xdp":                      "localhost/xdp:latest",
		"localhost:5000/xdp:v1":              "localhost:5000/xdp:v1",
		"[fd00::1]:5000/xdp":                 "[fd00::1]:5000/xdp:latest",
		"quay.io:0443/acme/xdp":              "quay.io/acme/xdp:latest",
		"quay.io:05000/acme/xdp":             "quay.io:5000/acme/xdp:latest",
		"index.docker.io:0443/busybox":       "docker.io/library/busybox:latest",
		"[0:0:0:0::1]:5000/xdp":              "[::1]:5000/xdp:latest",
		"[FD00:0::01]:443/xdp":               "[fd00::1]/xdp:latest",
		"[::ffff:a00:1]/xdp":                 "10.0.0.1/xdp:latest",
		"[CAFE]/xdp":                         "cafe/xdp:latest",      // no address, and a host's name without the brackets
		"file:5000/xdp":                      "file:5000/xdp:latest", // a host with that name
		"":                                   "!bytecode.image.url is empty",
		"quay.io/Acme/xdp":                   "!repository name (Acme/xdp) must be lowercase",
		"quay.io/../xdp":                     "!invalid reference format",
		"quay.io/acme/xdp@sha256:12":         "!invalid reference format",
		"https://quay.io/acme/xdp":           "!invalid reference format",
		"my_host.io/acme/xdp":                "!it has no registry host",
		"file:/opt/x.o":                      "!invalid reference format",
		"quay.io/acme/xdp\n":                 "!invalid reference format",
	} {
		image, err := ParseImage(byURL(url))
		if wrong, found := strings.CutPrefix(want, "!"); found {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %v, %v, want %q", url, image, err, wrong)
			}
			continue
		}
		if err != nil || image.String() != want || image.IsFile() {
			t.Errorf("%s: %v, %v, want %s", url, image, err, want)
		}
	}
}

func TestParseFile(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/x.o":              "file:/opt/x.o",
		"/opt/good/../bad//x.o": "file:/opt/bad/x.o",
		"/../../x.o":            "file:/x.o",
		"/":                     "file:/",
		"opt/x.o":               "!isn't absolute",
		"":                      "!bytecode.path is empty",
	} {
		image, err := ParseImage(v1alpha1.BytecodeSelector{Path: &path})
		if wrong, found := strings.CutPrefix(want, "!"); found {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %v, %v, want %q", path, image, err, wrong)
			}
			continue
		}
		if err != nil || image.String() != want || !image.IsFile() {
			t.Errorf("%s: %v, %v, want %s", path, image, err, want)
		}
	}
	if _, err := ParseImage(v1alpha1.BytecodeSelector{}); err == nil {
		t.Error("bytecode that is neither image nor file is understood")
	}
	both := byURL("quay.io/acme/xdp")
	both.Path = new("/opt/x.o")
	if image, err := ParseImage(both); err != nil || image.String() != "quay.io/acme/xdp:latest" {
		t.Errorf("%v, %v: the image is what is loaded where a path is given too", image, err)
	}
}

// The parsed name parses to itself, so that a request to the registry with this name is
// for the same image that the rules matched.
func FuzzParseImage(f *testing.F) {
	for _, url := range []string{
		"quay.io/acme/xdp-pass:v1", "busybox", "DOCKER.IO:443/busybox@" + digest, "[::1]:5000/x", "a/b/c:d@" + digest, "file:5000/x", "A/b", "[0::1]:0443/x", "[::ffff:a00:1]/x",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		image, err := ParseImage(byURL(url))
		if err != nil {
			return
		}
		host, path, found := strings.Cut(image.Repository, "/")
		if !found || host == "" || path == "" || host != strings.ToLower(host) || strings.ContainsAny(path, ":@") {
			t.Errorf("%q has the repository %q", url, image.Repository)
		}
		if image.IsFile() || (image.Tag == "") == (image.Digest == "") {
			t.Errorf("%q is %+v", url, image)
		}
		// A host without a dot or colon looks like a path.
		if !strings.ContainsAny(host, ".:") && host != "localhost" {
			return
		}
		again, err := ParseImage(byURL(image.String()))
		if err != nil || again != image {
			t.Errorf("%q is %+v, which is %+v, %v", url, image, again, err)
		}
		if named, err := reference.ParseNormalizedNamed(image.String()); err != nil || named.Name() != image.Repository {
			t.Errorf("%q is %q, which others read as %v, %v", url, image, named, err)
		}
	})
}
