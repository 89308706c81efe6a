// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/hack/release/images"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

// machine is what a maintainer has: a registry, which is distribution's, and a key.
type machine struct {
	t   *testing.T
	dir string
	// tools is the directory with commands that make has built.
	tools string
	// host is the registry's name and port at the address, and registry the start of all names of images.
	address, host, registry, key string
	// ca is the registry's authority, and certificates has those of this machine too.
	ca, caKey, certificates string
	// source is the repository's address, from which users download files.
	source string
	// daemon, registrar, and opm are other projects' images.
	daemon, registrar, opm string
	// hosts, if it is set, is the /etc/hosts of all commands.
	hosts       string
	environment []string
	access      remote.Option
}

// newMachine skips the test unless the variable is set, as by the test's target in make. The registry listens at the
// address, and has the names, or that address.
func newMachine(t *testing.T, variable, address string, names ...string) *machine {
	t.Helper()
	tools := os.Getenv(variable)
	if tools == "" {
		t.Skip("it takes minutes: make test-release-published and make test-release-installed run such tests")
	}
	m := &machine{t: t, dir: t.TempDir(), tools: tools, address: address}
	m.key, m.ca, m.certificates = filepath.Join(m.dir, "release"), filepath.Join(m.dir, "ca.crt"), filepath.Join(m.dir, "certificates.crt")
	authority, err := registry.NewAuthority(m.ca, names...)
	if err != nil {
		t.Fatal(err)
	}
	m.caKey = filepath.Join(m.dir, "ca.key")
	if err := authority.WriteKey(m.caKey); err != nil {
		t.Fatal(err)
	}
	called := address
	if len(names) > 0 {
		called = names[0]
		m.hosts = filepath.Join(m.dir, "hosts")
		m.write(m.hosts, "127.0.0.1 localhost\n"+address+" "+strings.Join(names, " ")+"\n")
	}
	m.write(m.certificates, m.read("/etc/ssl/certs/ca-certificates.crt")+m.read(m.ca))
	m.access = remote.WithTransport(m.transport())
	m.host = m.serveRegistry(called)
	m.registry = m.host + "/some/where"
	m.daemon, m.registrar, m.opm = m.host+"/other/bpfman:v0.6.0", m.host+"/other/registrar:v2.13.0", m.host+"/other/opm:v1"
	m.environment = append(os.Environ(), "MAKEFLAGS=", "MAKEOVERRIDES=", "VERSION=", "GH_TOKEN=", "COSIGN_PASSWORD=",
		"SSL_CERT_FILE="+m.certificates, "CURL_CA_BUNDLE="+m.certificates, "DOCKER_CONFIG="+m.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	m.run(filepath.Join(tools, "cosign"), "generate-key-pair", "--output-key-prefix", m.key)
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// transport trusts the registry, and finds it at the address.
func (m *machine) transport() http.RoundTripper {
	m.t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(m.read(m.ca)))
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, host string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(host)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(m.address, port))
		},
	}
}

// serveRegistry starts the registry, and returns its host and port.
func (m *machine) serveRegistry(called string) string {
	m.t.Helper()
	free, err := (&net.ListenConfig{}).Listen(m.t.Context(), "tcp", net.JoinHostPort(m.address, "0"))
	if err != nil {
		m.t.Fatal(err)
	}
	listen := free.Addr().String()
	_, port, err := net.SplitHostPort(listen)
	if err = errors.Join(err, free.Close()); err != nil {
		m.t.Fatal(err)
	}
	config := filepath.Join(m.dir, "registry.yml")
	m.write(config, fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}}
http: {addr: %q, tls: {certificate: %s, key: %s}}
`, filepath.Join(m.dir, "registry"), listen, m.ca, m.caKey))
	server := exec.CommandContext(m.t.Context(), filepath.Join(m.tools, "registry"), "serve", config)
	server.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	// It logs each request for what isn't there as an error.
	output, err := os.Create(filepath.Join(m.dir, "registry.log"))
	if err != nil {
		m.t.Fatal(err)
	}
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _, _, _ = server.Process.Kill(), server.Wait(), output.Close() })
	host := net.JoinHostPort(called, port)
	root, err := name.NewRegistry(host)
	if err != nil {
		m.t.Fatal(err)
	}
	err = eventually.Succeeds(m.t.Context(), time.Minute, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := remote.Catalog(ctx, root, m.access)
		return err
	})
	if err != nil {
		m.t.Fatalf("the registry doesn't answer: %v\n%s", err, m.read(output.Name()))
	}
	return host
}

// pushOthers publishes images that stand for those of other projects.
func (m *machine) pushOthers() {
	m.t.Helper()
	others := images.Release{Registry: m.host + "/other", Architectures: []string{"amd64", "arm64", "ppc64le", "s390x"}}
	for _, other := range []string{m.daemon, m.registrar, m.opm} {
		content, err := others.Data(other, map[string]fs.FS{"/": fstest.MapFS{"file": {Data: []byte(other)}}}, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		m.push(other, content)
	}
}

func (m *machine) push(to string, content v1.ImageIndex) {
	m.t.Helper()
	ref, err := name.ParseReference(to)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, content, m.access); err != nil {
		m.t.Fatal(err)
	}
}

// clone returns a clone at a commit.
func (m *machine) clone(commit string) string {
	m.t.Helper()
	clone := filepath.Join(m.dir, "clone-"+commit)
	m.run("git", "clone", "--quiet", "--no-tags", "../..", clone)
	m.run("git", "-C", clone, "-c", "advice.detachedHead=false", "checkout", "--quiet", commit)
	// The tools are the same as those that make would build again.
	if m.read(filepath.Join(clone, "hack/make/tools.mk")) == m.read("../make/tools.mk") {
		for _, tool := range []string{"cosign", "helm", "kustomize"} {
			m.run("install", "-D", filepath.Join(m.tools, tool), filepath.Join(clone, "bin", tool))
		}
	}
	return clone
}

func (m *machine) tag(clone, version string) {
	m.t.Helper()
	for _, tag := range []string{"v" + version, "apis/v" + version} {
		m.run("git", "-C", clone, "tag", tag)
	}
}

// release runs what a maintainer runs.
func (m *machine) release(clone, version string, more ...string) (string, error) {
	architectures := "amd64"
	if set := os.Getenv("ARCHITECTURES"); set != "" {
		architectures = set
	}
	arguments := []string{
		"-C", clone, "--no-print-directory", "release", "VERSION=" + version, "REGISTRY=" + m.registry, "ARCHITECTURES=" + architectures,
		"PLUGIN_PLATFORMS=linux/amd64", "BPFMAN_IMG=" + m.daemon, "BPFMAN_REGISTRAR_IMG=" + m.registrar, "OPM_IMAGE=" + m.opm,
		"COSIGN_FLAGS=--key " + m.key + ".key --tlog-upload=false --use-signing-config=false",
	}
	if m.source != "" {
		arguments = append(arguments, "SOURCE="+m.source)
	}
	return m.try("make", append(arguments, more...)...)
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
	if m.hosts != "" {
		arguments = append([]string{"--mount", "sh", "-ec", withHosts, m.hosts, command}, arguments...)
		command = "unshare"
	}
	run := exec.CommandContext(m.t.Context(), command, arguments...)
	run.Env = m.environment
	output, err := run.CombinedOutput()
	return string(output), err
}

// withHosts runs a command with another /etc/hosts, in a mount namespace of its own.
const withHosts = `mount --bind "$0" /etc/hosts && exec "$@"`
