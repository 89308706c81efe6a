// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestImagePatterns(t *testing.T) {
	for _, test := range []struct {
		pattern  string
		yes, not string // images, separated by spaces
	}{
		{"**", "busybox quay.io/acme/xdp@" + digest + " localhost:5000/x /opt/x.o", ""},
		{"quay.io/acme/xdp", "quay.io/acme/xdp quay.io/acme/xdp:v1 QUAY.IO:443/acme/xdp quay.io/acme/xdp@" + digest, "quay.io/acme/xdp2 quay.io/acme/xdp/more evil.com/quay.io/acme/xdp quay.io:5000/acme/xdp"},
		{"quay.io/acme/*", "quay.io/acme/xdp:v1 quay.io/acme/x@" + digest, "quay.io/acme/x/y quay.io/acme quay.io/acme2/x quay.io.evil.com/acme/x evil.com/quay.io/acme/x"},
		{"quay.io/acme/**", "quay.io/acme/xdp quay.io/acme/x/y:v2", "quay.io/acme quay.io/acme2/x"},
		{"quay.io/*/xdp", "quay.io/acme/xdp", "quay.io/a/b/xdp quay.io/xdp"},
		{"*.acme.io/x", "r.acme.io/x a.b.acme.io/x", "acme.io/x evil.com/a.acme.io/x evilacme.io/x r.acme.io.evil.com/x r.acme.io:5000/x"},
		{"*.acme.io/**", "r.acme.io/x/y", "evil.com/a.acme.io/x evil.com/a.acme.io/x/y"},
		{"*/x", "localhost/x r.io:5000/x [fd00::1]:5000/x", "evil.com/a/x /x"},
		{"*/**", "busybox quay.io/a/b/c", "/opt/x.o"},
		{"localhost:*/x", "localhost:5000/x", "localhost/x localhost.evil.com/x"},
		{"file:*/x", "file:5000/x", "/opt/x /x"}, // a host with that name
		{"docker.io/library/*", "busybox docker.io/busybox index.docker.io/library/busybox:1 DOCKER.IO/busybox", "acme/busybox"},
		{"quay.io/acme/x:v1", "quay.io/acme/x:v1", "quay.io/acme/x quay.io/acme/x:v11 quay.io/acme/x:v1@" + digest + " quay.io/acme/x@" + digest},
		{"quay.io/acme/*:v*", "quay.io/acme/x:v1 quay.io/acme/y:v", "quay.io/acme/x quay.io/acme/x@" + digest},
		{"quay.io/acme/*:*", "quay.io/acme/x:v1 quay.io/acme/x", "quay.io/acme/x@" + digest},
		{"quay.io/**:*", "quay.io/acme/x:v1", "quay.io/acme/x@" + digest},
		{"quay.io/acme/x:latest", "quay.io/acme/x", "quay.io/acme/x:v1"},
		{"quay.io/acme/x@" + digest, "quay.io/acme/x@" + digest + " quay.io/acme/x:any@" + digest, "quay.io/acme/x quay.io/acme/x@" + strings.Replace(digest, "3", "4", 1)},
		{"quay.io/acme/*@sha256:*", "quay.io/acme/x@" + digest, "quay.io/acme/x:v1"},
		{"localhost:5000/x", "localhost:5000/x:v1 localhost:5000/x", "localhost:5000/y"},
		{"file:/opt/*", "/opt/x.o /opt/../opt/x.o", "/opt/a/x.o /opt/../etc/x.o /optional/x.o"},
		{"file:/opt/**", "/opt/x.o /opt/a/b:c@d.o", "/opt/../etc/x.o"},
		{"file:/**", "/x /opt/x.o", "file:5000/x busybox"},
		{"file:/a.o", "/a.o", "/axo"},
		// The API server refuses these patterns. They match nothing.
		{"*", "", "busybox quay.io/acme/x"},
		{"busybox", "", "busybox"},
		{"docker.io/busybox", "", "busybox"},
		{"quay.io:443/acme/x", "", "quay.io/acme/x quay.io:443/acme/x"},
		{"quay.io/acme/x:v1@" + digest, "", "quay.io/acme/x:v1@" + digest},
	} {
		p := compileImage(test.pattern)
		for want, images := range map[bool]string{true: test.yes, false: test.not} {
			for name := range strings.FieldsSeq(images) {
				if got := p.match(image(t, name)); got != want {
					t.Errorf("%s and %s: %t", test.pattern, name, got)
				}
			}
		}
	}
}

func TestNamePatterns(t *testing.T) {
	for _, test := range []struct{ pattern, yes, not string }{
		{"*", "eth0 a/b", ""},
		{"eth*", "eth0 eth", "veth0 Eth0"},
		{"syscalls/sys_enter_*", "syscalls/sys_enter_kill", "sched/sched_switch syscalls/sys_exit_kill"},
		{"eth0.100", "eth0.100", "eth0x100 eth0.1000"},
		{"*.so*", "libc.so.6 /lib/libc.so", "libc"},
		{"**", "a/b c", ""},
		{`a\Eb[(.+`, `a\Eb[(.+`, "a"},
	} {
		n := compileNames([]string{"none", test.pattern})
		for want, names := range map[bool]string{true: test.yes, false: test.not} {
			for name := range strings.FieldsSeq(names) {
				if got := n.match(name); got != want {
					t.Errorf("%s and %s: %t", test.pattern, name, got)
				}
			}
		}
	}
}

// image parses an image, or a path.
func image(t *testing.T, name string) Image {
	t.Helper()
	selector := byURL(name)
	if strings.HasPrefix(name, "/") {
		selector.Image, selector.Path = nil, &name
	}
	i, err := ParseImage(selector)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// naive is a simple implementation of matching a pattern.
func naive(pattern, text string, crosses func(rest string, c byte) bool) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] != '*' {
		return text != "" && text[0] == pattern[0] && naive(pattern[1:], text[1:], crosses)
	}
	wildcard := pattern[:1]
	if strings.HasPrefix(pattern, "**") {
		wildcard = pattern[:2]
	}
	return naive(pattern[len(wildcard):], text, crosses) || text != "" && crosses(wildcard, text[0]) && naive(pattern, text[1:], crosses)
}

// naiveImage matches repository, tag, and digest separately.
func naiveImage(pattern string, i Image) bool {
	path := func(wildcard string, c byte) bool { return wildcard == "**" || c != '/' }
	if pattern == "**" {
		return true
	}
	if strings.HasPrefix(pattern, "file:/") || i.IsFile() {
		return i.IsFile() && strings.HasPrefix(pattern, "file:/") && naive(pattern, i.Repository, path)
	}
	repository, digest, hasDigest := strings.Cut(pattern, "@")
	tag, hasTag := "", false
	if slash := strings.LastIndexByte(repository, '/'); strings.Contains(repository[slash+1:], ":") {
		last := strings.LastIndexByte(repository, ':')
		repository, tag, hasTag = repository[:last], repository[last+1:], true
	}
	switch {
	case hasTag && hasDigest, hasTag && i.Tag == "", hasDigest && i.Digest == "":
		return false
	case hasTag && !naive(tag, i.Tag, path), hasDigest && !naive(digest, i.Digest, path):
		return false
	}
	return naive(repository, i.Repository, path)
}

func FuzzPatterns(f *testing.F) {
	for _, seed := range [][2]string{
		{"*.acme.io/x", "evil.com/a.acme.io/x"},
		{"quay.io/**:*", "quay.io/acme/x@" + digest},
		{"quay.io/*/x@sha256:*", "quay.io/acme/x@" + digest},
		{"file:/opt/*", "/opt/../etc/x"},
		{"***/x*:v*", "localhost:5000/a/x:v1"},
		{`\E*\Q`, `\Equay.io/x\Q`},
		{"*:***", "localhost:5000/a/x:v1"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		// The naive matcher takes exponential time.
		if strings.Count(pattern, "*") > 6 || len(pattern)+len(name) > 256 || !utf8.ValidString(pattern) || !utf8.ValidString(name) {
			compileImage(pattern)
			compileNames([]string{pattern})
			return
		}
		if got, want := compileNames([]string{pattern}).match(name), naive(pattern, name, func(string, byte) bool { return true }); got != want {
			t.Errorf("names: %q and %q: %t", pattern, name, got)
		}
		selector := byURL(name)
		if strings.HasPrefix(name, "/") {
			selector.Image, selector.Path = nil, &name
		}
		i, err := ParseImage(selector)
		if err != nil {
			return
		}
		// References don't have this form, and the API server refuses such patterns.
		if !strings.HasPrefix(pattern, "file:/") && (strings.Count(pattern, "@") > 1 || strings.Contains(pattern[strings.LastIndexByte(pattern, '@')+1:], "/")) {
			return
		}
		// After a colon, ** also matches a port and what follows it.
		if _, tag, has := strings.Cut(pattern[strings.LastIndexByte(pattern, '/')+1:], ":"); has && strings.Contains(tag, "**") {
			return
		}
		if got, want := compileImage(pattern).match(i), naiveImage(pattern, i); got != want {
			t.Errorf("%q and %s: %t", pattern, i, got)
		}
	})
}
