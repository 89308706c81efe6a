// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// The next page is on the same registry, because no other server must get the
// credentials.
func TestFollowing(t *testing.T) {
	at := &url.URL{Scheme: "https", Host: "quay.io:443", Path: "/v2/acme/xdp/referrers/sha256:00"}
	for link, want := range map[string]string{
		`</v2/acme/xdp/referrers/sha256:00?n=2>; rel="next"`: "https://quay.io:443/v2/acme/xdp/referrers/sha256:00?n=2",
		`<https://quay.io:443/x>; rel=next`:                  "https://quay.io:443/x",
		`<https://elsewhere.example/x>; rel="next"`:          "",
		`<http://quay.io:443/x>; rel="next"`:                 "",
		`</x>; rel="previous"`:                               "",
		`</x>; rel="first", </y?n=2>; rel="next"`:            "https://quay.io:443/y?n=2",
		`</y?n=2>; rel="next", </x>; rel="first"`:            "https://quay.io:443/y?n=2",
		`/x; rel="next"`:                                     "",
		`<%zz>; rel="next"`:                                  "",
		"":                                                   "",
	} {
		got := ""
		if next := following(at, http.Header{"Link": {link}}); next != nil {
			got = next.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}

// Images are parsed like in the agent and the daemon.
func TestParse(t *testing.T) {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	long := "quay.io/acme/xdp@sha512:" + strings.Repeat("0", 128)
	for image, want := range map[string]string{
		"quay.io/acme/xdp@" + digest:          "quay.io:443/acme/xdp",
		"quay.io/acme/xdp:v1@" + digest:       "quay.io:443/acme/xdp",
		"registry.example:5000/xdp@" + digest: "registry.example:5000/xdp",
		"localhost/xdp@" + digest:             "localhost:443/xdp",
		"alpine@" + digest:                    "registry-1.docker.io:443/library/alpine",
		"alpine":                              "registry-1.docker.io:443/library/alpine",
		"quay.io/acme/xdp":                    "quay.io:443/acme/xdp",
		"[::1]/acme/xdp":                      "[::1]:443/acme/xdp",
		"QUAY.io:443/acme/xdp":                "quay.io:443/acme/xdp",
		"DOCKER.IO:443/alpine":                "registry-1.docker.io:443/library/alpine",
		"index.docker.io:443/alpine":          "registry-1.docker.io:443/library/alpine",
		"[0:0::1]:0443/acme/xdp":              "[::1]:443/acme/xdp",
		long:                                  "quay.io:443/acme/xdp",
	} {
		got, err := parse(image)
		if err != nil || got.version.Context().Name() != want {
			t.Errorf("%s: %v, %v, want %s", image, got, err, want)
		}
	}
	for _, image := range []string{"quay.io/UPPER/xdp", "my_host.io/xdp", "quay.io/xdp@sha256:12"} {
		if got, err := parse(image); err == nil || problem.Of(err) != problem.InvalidReference {
			t.Errorf("%s: %v, %v", image, got, err)
		}
	}
}

// What is read is what policies match: they use the same parser, and nothing afterwards changes the repository, the
// tag, or the digest.
func FuzzParse(f *testing.F) {
	for _, image := range []string{"quay.io/acme/xdp:v1", "busybox", "DOCKER.IO:443/busybox", "my_host.io/x", "localhost/x", "[0::1]/x", "[::ffff:a00:1]/x", "[CAFE]/x", "a:0443/b@sha256:" + strings.Repeat("0", 64)} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		r, err := parse(image)
		if err != nil {
			return
		}
		want, err := policy.ParseImage(v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: image}})
		if err != nil {
			t.Fatalf("%q is read, and policies can't parse it: %v", image, err)
		}
		host := strings.TrimSuffix(r.name.RegistryStr(), ":443")
		if host == "registry-1.docker.io" && want.Host() == "docker.io" {
			host = "docker.io"
		}
		version := r.version.Identifier()
		if got := host + "/" + r.name.RepositoryStr(); got != want.Repository || version != want.Tag+want.Digest {
			t.Errorf("%q: reads %s %s, policies match %+v", image, got, version, want)
		}
	})
}

func FuzzFollowing(f *testing.F) {
	at := &url.URL{Scheme: "https", Host: "quay.io:443", Path: "/v2/acme/xdp/referrers/sha256:00"}
	f.Add(`</v2/acme/xdp/referrers/sha256:00?n=2>; rel="next"`)
	f.Add(`<https://elsewhere.example/x>; rel="next"`)
	f.Fuzz(func(t *testing.T, link string) {
		if next := following(at, http.Header{"Link": {link}}); next != nil && (next.Host != at.Host || next.Scheme != "https") {
			t.Errorf("%s leads to %s", link, next)
		}
	})
}
