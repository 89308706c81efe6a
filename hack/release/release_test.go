// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// The version is a candidate, which needs no section in the changelog.
const version = "0.98.7-rc.1"

// TestRelease publishes a release from a clean clone to a registry with a name and a certificate authority of its own,
// twice, and verifies it as the documentation says.
func TestRelease(t *testing.T) {
	m := newMachine(t, "RELEASE_PUBLISHED", "127.0.0.1")
	m.pushOthers()
	clone := m.clone("HEAD")
	if output, err := m.release(clone, version, "PUBLISH=yes"); err == nil || !strings.Contains(output, "git tag -s v"+version) {
		t.Fatalf("a commit without the tags is published: %v\n%s", err, output)
	}
	m.tag(clone, version)

	first, err := m.release(clone, version, "PUBLISH=yes")
	if err != nil {
		t.Fatalf("make release: %v\n%s", err, first)
	}
	m.verifyImages(first)
	m.verifyFiles(clone)
	m.verifyChart()
	m.verifyChecksums(clone)
	m.verifyModule(clone)

	again, err := m.release(clone, version, "PUBLISH=yes")
	if err != nil {
		t.Fatalf("make release, again: %v\n%s", err, again)
	}
	if published := published.FindAllString(again, -1); len(published) > 0 {
		t.Errorf("published again: %q", published)
	}
	if changes := m.run("git", "-C", clone, "status", "--porcelain"); changes != "" {
		t.Errorf("the release changes the clone:\n%s", changes)
	}
	m.verifyPages(clone)
}

// published matches the lines about what is pushed or signed.
var published = regexp.MustCompile(`(?m)^(?:pushed|cosign (?:sign|attest)) (\S+)@(sha256:\S+).*$`)

// verifyImages verifies the signatures and the provenance of all images, and the bills of materials of commands.
func (m *machine) verifyImages(output string) {
	m.t.Helper()
	cosign, key := filepath.Join(m.tools, "cosign"), []string{"--key", m.key + ".pub", "--insecure-ignore-tlog=true"}
	count := 0
	for _, found := range published.FindAllStringSubmatch(output, -1) {
		if !strings.HasPrefix(found[0], "pushed ") {
			continue
		}
		count++
		ref, err := name.ParseReference(found[1])
		if err != nil {
			m.t.Fatal(err)
		}
		if ref.Identifier() != "v"+version && ref.Identifier() != version {
			m.t.Errorf("a candidate has the tag %s", ref)
		}
		m.run(cosign, append([]string{"verify", ref.String()}, key...)...)
		m.run(cosign, append([]string{"verify-attestation", "--type", "slsaprovenance1", ref.String()}, key...)...)
		if !slices.ContainsFunc(image.Published, func(c image.Command) bool { return ref.Context().Name() == m.registry+"/"+c.Repository }) {
			continue
		}
		index, err := remote.Index(ref, m.access)
		if err != nil {
			m.t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			m.t.Fatal(err)
		}
		for _, each := range manifest.Manifests {
			m.run(cosign, append([]string{"verify-attestation", "--type", "cyclonedx", ref.Context().Digest(each.Digest.String()).String()}, key...)...)
		}
	}
	if count < len(image.Published)+20 {
		m.t.Errorf("%d images are pushed:\n%s", count, output)
	}
}

// verifyFiles checks the files of the release.
func (m *machine) verifyFiles(clone string) {
	m.t.Helper()
	paths, err := filepath.Glob(filepath.Join(clone, "bin/release-files/*"))
	if err != nil || len(paths) < 15 {
		m.t.Fatalf("the files are %q: %v", paths, err)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		maps.Copy(files, contents(m.t, path))
	}
	m.verifyNames(files, 20)
}

func (m *machine) verifyChecksums(clone string) {
	m.t.Helper()
	files := filepath.Join(clone, "bin/release-files")
	checksums := filepath.Join(files, "checksums.txt")
	cosign, key := filepath.Join(m.tools, "cosign"), []string{"--key", m.key + ".pub", "--insecure-ignore-tlog=true"}
	m.run(cosign, append([]string{"verify-blob", "--bundle", checksums + ".sigstore.json", checksums}, key...)...)
	m.run(cosign, append([]string{"verify-blob-attestation", "--type", "slsaprovenance1", "--bundle", checksums + ".provenance.sigstore.json", checksums}, key...)...)
	m.run("sh", "-c", "cd "+files+" && sha256sum --check --quiet checksums.txt")
}

// verifyPages checks the pages that are published on the documentation's site. Those of a candidate would name the
// version before it.
func (m *machine) verifyPages(clone string) {
	m.t.Helper()
	m.run("make", "-C", clone, "--no-print-directory", "bump", "NEW="+version)
	m.run("make", "-C", clone, "--no-print-directory", "docs-names", "VERSION="+version, "REGISTRY="+m.registry)
	files := map[string][]byte{}
	for _, pattern := range []string{"docs/*.md", "docs/tutorials/*.md"} {
		paths, err := filepath.Glob(filepath.Join(clone, pattern))
		if err != nil {
			m.t.Fatal(err)
		}
		for _, path := range paths {
			maps.Copy(files, contents(m.t, path))
		}
	}
	m.verifyNames(files, 10)
}

// verifyNames checks that no file names the tree's registry, which is upstream's, and that all images that files name
// are published, of which there are at least so many.
func (m *machine) verifyNames(files map[string][]byte, least int) {
	m.t.Helper()
	named := regexp.MustCompile(regexp.QuoteMeta(m.registry) + `/[a-z0-9/._-]+:[A-Za-z0-9._-]*[A-Za-z0-9](@sha256:[0-9a-f]{64})?`)
	// Scripts and the chart refuse upstream's names, and say so. The daemon is upstream's.
	reason := regexp.MustCompile(`(?i)upstream|quay\.io/bpfman/bpfman:v`)
	references := map[string]bool{}
	for file, content := range files {
		if bytes.IndexByte(content, 0) >= 0 {
			continue // a command
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, image.Registry) && !reason.MatchString(line) {
				m.t.Errorf("%s names the default: %s", file, line)
			}
			for _, reference := range named.FindAllString(line, -1) {
				references[reference] = true
			}
		}
	}
	if len(references) < least {
		m.t.Errorf("the files name %d images", len(references))
	}
	for reference := range references {
		ref, err := name.ParseReference(reference)
		if err != nil {
			m.t.Fatal(err)
		}
		if _, err := remote.Head(ref, m.access); err != nil {
			m.t.Errorf("%s isn't published: %v", reference, err)
		}
	}
}

// contents returns the content of a file, or of the files in an archive.
func contents(t *testing.T, path string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return map[string][]byte{path: content}
	}
	files := map[string][]byte{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if files[path+"/"+header.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// verifyChart renders the chart from the registry, as helm install does.
func (m *machine) verifyChart() {
	m.t.Helper()
	rendered := m.run(filepath.Join(m.tools, "helm"), "template", "bpfman", "oci://"+m.registry+"/charts/bpfman-operator", "--version", version)
	for _, expected := range []string{m.registry + "/bpfman-operator:v" + version + "@sha256:", m.daemon + "@sha256:"} {
		if !strings.Contains(rendered, expected) {
			m.t.Errorf("the chart has no %q", expected)
		}
	}
}

// verifyModule downloads the module apis by its tag, as go get does.
func (m *machine) verifyModule(clone string) {
	m.t.Helper()
	dir := m.t.TempDir()
	config := filepath.Join(dir, "gitconfig")
	text := "[url \"file://" + clone + "\"]\n\tinsteadOf = https://github.com/bpfman/bpfman-operator\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.run("env", "GIT_CONFIG_GLOBAL="+config, "GOPRIVATE=github.com/bpfman/*", "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+filepath.Join(dir, "modules"),
		"go", "-C", dir, "mod", "download", "github.com/bpfman/bpfman-operator/apis@v"+version)
}
