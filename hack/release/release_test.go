// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/release/images"
)

// The version is a candidate, which needs no section in the changelog.
const version = "0.98.7-rc.1"

// machine is what a maintainer has: a clone with the version's tags, a registry, and a key.
type machine struct {
	t                    *testing.T
	clone, registry, key string
	daemon, registrar    string
	opm                  string
	environment          []string
	access               remote.Option
}

// newMachine skips the test unless `make test-release-published` runs it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getenv("RELEASE_TEST") != "yes" {
		t.Skip("it takes minutes: make test-release-published runs it")
	}
	// Like ghcr.io, the registry has no API for what is attached to an image.
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(server.URL, "https://")
	m := &machine{
		t: t, clone: filepath.Join(dir, "clone"), registry: host + "/some/where", key: filepath.Join(dir, "release"),
		access: remote.WithTransport(server.Client().Transport), daemon: host + "/other/bpfman:v0.6.0", registrar: host + "/other/registrar:v2.13.0", opm: host + "/other/opm:v1",
	}
	m.environment = append(os.Environ(), "MAKEFLAGS=", "MAKEOVERRIDES=", "VERSION=", "GH_TOKEN=", "COSIGN_PASSWORD=",
		"SSL_CERT_FILE="+ca, "DOCKER_CONFIG="+dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	others := images.Release{Registry: host + "/other", Architectures: []string{"amd64", "arm64", "ppc64le", "s390x"}}
	for _, other := range []string{m.daemon, m.registrar, m.opm} {
		content, err := others.Data(other, map[string]fs.FS{"/": fstest.MapFS{"file": {Data: []byte(other)}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, content, m.access); err != nil {
			t.Fatal(err)
		}
	}
	m.run("git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--no-tags", "../..", m.clone)
	return m
}

func (m *machine) run(command string, arguments ...string) string {
	m.t.Helper()
	output, err := m.try(command, arguments...)
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s", command, strings.Join(arguments, " "), err, output)
	}
	return output
}

func (m *machine) try(command string, arguments ...string) (string, error) {
	run := exec.CommandContext(m.t.Context(), command, arguments...)
	run.Env = m.environment
	output, err := run.CombinedOutput()
	return string(output), err
}

// release runs what a maintainer runs.
func (m *machine) release(more ...string) (string, error) {
	architectures := "amd64"
	if set := os.Getenv("ARCHITECTURES"); set != "" {
		architectures = set
	}
	return m.try("make", append([]string{
		"-C", m.clone, "--no-print-directory", "release", "VERSION=" + version, "REGISTRY=" + m.registry, "ARCHITECTURES=" + architectures,
		"PLUGIN_PLATFORMS=linux/amd64", "BPFMAN_IMG=" + m.daemon, "BPFMAN_REGISTRAR_IMG=" + m.registrar, "OPM_IMAGE=" + m.opm,
		"COSIGN_FLAGS=--key " + m.key + ".key --tlog-upload=false --use-signing-config=false",
	}, more...)...)
}

// TestRelease publishes a release from a clean clone to a registry with a name and a certificate authority of its own,
// twice, and verifies it as the documentation says.
func TestRelease(t *testing.T) {
	m := newMachine(t)
	if output, err := m.release("PUBLISH=yes"); err == nil || !strings.Contains(output, "git tag -s v"+version) {
		t.Fatalf("a commit without the tags is published: %v\n%s", err, output)
	}
	for _, tag := range []string{"v" + version, "apis/v" + version} {
		m.run("git", "-C", m.clone, "tag", tag)
	}
	m.run("make", "-C", m.clone, "--no-print-directory", "cosign")
	cosign := filepath.Join(m.clone, "bin/cosign")
	m.run(cosign, "generate-key-pair", "--output-key-prefix", m.key)

	first, err := m.release("PUBLISH=yes")
	if err != nil {
		t.Fatalf("make release: %v\n%s", err, first)
	}
	m.verifyImages(cosign, first)
	m.verifyFiles()
	m.verifyChart()
	m.verifyChecksums(cosign)
	m.verifyModule()

	again, err := m.release("PUBLISH=yes")
	if err != nil {
		t.Fatalf("make release, again: %v\n%s", err, again)
	}
	if published := published.FindAllString(again, -1); len(published) > 0 {
		t.Errorf("published again: %q", published)
	}
	m.verifyPages()
	m.run("git", "-C", m.clone, "checkout", "--quiet", "docs")
	if changes := m.run("git", "-C", m.clone, "status", "--porcelain"); changes != "" {
		t.Errorf("the release changes the clone:\n%s", changes)
	}
}

// published matches the lines about what is pushed or signed.
var published = regexp.MustCompile(`(?m)^(?:pushed|cosign (?:sign|attest)) (\S+)@(sha256:\S+).*$`)

// verifyImages verifies the signatures and the provenance of all images, and the bills of materials of commands.
func (m *machine) verifyImages(cosign, output string) {
	m.t.Helper()
	key := []string{"--key", m.key + ".pub", "--insecure-ignore-tlog=true"}
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
func (m *machine) verifyFiles() {
	m.t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.clone, "bin/release-files/*"))
	if err != nil || len(paths) < 15 {
		m.t.Fatalf("the files are %q: %v", paths, err)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		maps.Copy(files, contents(m.t, path))
	}
	m.verifyNames(files, 20)
}

func (m *machine) verifyChecksums(cosign string) {
	m.t.Helper()
	files := filepath.Join(m.clone, "bin/release-files")
	checksums := filepath.Join(files, "checksums.txt")
	key := []string{"--key", m.key + ".pub", "--insecure-ignore-tlog=true"}
	m.run(cosign, append([]string{"verify-blob", "--bundle", checksums + ".sigstore.json", checksums}, key...)...)
	m.run(cosign, append([]string{"verify-blob-attestation", "--type", "slsaprovenance1", "--bundle", checksums + ".provenance.sigstore.json", checksums}, key...)...)
	m.run("sh", "-c", "cd "+files+" && sha256sum --check --quiet checksums.txt")
}

// verifyPages checks the pages that are published on the documentation's site.
func (m *machine) verifyPages() {
	m.t.Helper()
	m.run("make", "-C", m.clone, "--no-print-directory", "docs-names", "VERSION="+version, "REGISTRY="+m.registry)
	files := map[string][]byte{}
	for _, pattern := range []string{"docs/*.md", "docs/tutorials/*.md"} {
		paths, err := filepath.Glob(filepath.Join(m.clone, pattern))
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
	rendered := m.run(filepath.Join(m.clone, "bin/helm"), "template", "bpfman", "oci://"+m.registry+"/charts/bpfman-operator", "--version", version)
	for _, expected := range []string{m.registry + "/bpfman-operator:v" + version + "@sha256:", m.daemon + "@sha256:"} {
		if !strings.Contains(rendered, expected) {
			m.t.Errorf("the chart has no %q", expected)
		}
	}
}

// verifyModule downloads the module apis by its tag, as go get does.
func (m *machine) verifyModule() {
	m.t.Helper()
	dir := m.t.TempDir()
	config := filepath.Join(dir, "gitconfig")
	text := "[url \"file://" + m.clone + "\"]\n\tinsteadOf = https://github.com/bpfman/bpfman-operator\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.run("env", "GIT_CONFIG_GLOBAL="+config, "GOPRIVATE=github.com/bpfman/*", "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+filepath.Join(dir, "modules"),
		"go", "-C", dir, "mod", "download", "github.com/bpfman/bpfman-operator/apis@v"+version)
}
