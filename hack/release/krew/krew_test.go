// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package krew

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const url = "https://example.com/download/v1.2.3"

// pack creates an archive of empty files.
func pack(t *testing.T, name string, files ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, file := range files {
		if err := w.WriteHeader(&tar.Header{Name: "./" + file, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{w.Close(), z.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// The project's template results in a manifest that contains each archive with its
// checksum.
func TestManifest(t *testing.T) {
	template, err := os.ReadFile("../../../cli/krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var archives []Archive
	for _, c := range []struct{ name, command string }{
		{"kubectl-bpfman-1.2.3-windows-amd64.tar.gz", "kubectl-bpfman.exe"}, {"kubectl-bpfman-1.2.3-linux-arm64.tar.gz", "kubectl-bpfman"},
	} {
		a, err := Open(pack(t, c.name, c.command, "LICENSE"), "1.2.3", url)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, a)
	}
	manifest, err := Manifest(string(template), "1.2.3", archives)
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err := yaml.Unmarshal(manifest, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Platforms) != 2 || p.Spec.Version != "v1.2.3" || p.Metadata.Name != "bpfman" {
		t.Fatalf("the manifest is\n%s", manifest)
	}
	linux, windows := p.Spec.Platforms[0], p.Spec.Platforms[1]
	if linux.Bin != "kubectl-bpfman" || linux.SHA256 != archives[1].SHA256 || linux.URI != url+"/kubectl-bpfman-1.2.3-linux-arm64.tar.gz" ||
		windows.Bin != "kubectl-bpfman.exe" || windows.SHA256 != archives[0].SHA256 || windows.Selector.MatchLabels["os"] != "windows" {
		t.Errorf("the platforms are %+v", p.Spec.Platforms)
	}
}

func TestOpenRefuses(t *testing.T) {
	const name = "kubectl-bpfman-1.2.3-linux-amd64.tar.gz"
	text := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"isn't named as an archive of version 1.2.3": pack(t, "kubectl-bpfman-1.2.2-linux-amd64.tar.gz", command, "LICENSE"),
		"lacks kubectl-bpfman: ":                     pack(t, name, "LICENSE"),
		"lacks LICENSE: it has kubectl-bpfman":       pack(t, name, command),
		"it isn't gzipped":                           text,
		"no such file":                               filepath.Join(t.TempDir(), name),
	} {
		if a, err := Open(file, "1.2.3", url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, error %v, want %q", file, a, err, want)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	good := `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata: {name: bpfman}
spec:
  version: v1.2.3
  homepage: https://example.com
  shortDescription: short
  description: long
  platforms:
  - {selector: {matchLabels: {os: linux, arch: amd64}}, uri: "https://example.com/a", sha256: "` + strings.Repeat("0a", 32) + `", bin: kubectl-bpfman}
`
	if err := Validate([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"kind: Plugin", "kind: Other", "its kind is"},
		{"name: bpfman", "name: ../bpfman", "its name is"},
		{"v1.2.3", "1.2.3", "its version"},
		{"shortDescription: short", "shortDescription: " + strings.Repeat("long", 20), "its short description"},
		{"homepage: https", "homepage: http", "it lacks a homepage"},
		{"os: linux", "os: ''", "is none"},
		{`uri: "https`, `uri: "http`, "its address"},
		{"0a0a", "0A0A", "its checksum"},
		{"bin: kubectl", "bin: ../kubectl", "its command"},
		{"spec:", "spec:\n  more: true", "unknown field"},
		{good[strings.Index(good, "  platforms"):], "  platforms: []\n", "no platform"},
	} {
		if err := Validate([]byte(strings.Replace(good, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.new, err, c.want)
		}
	}
}
