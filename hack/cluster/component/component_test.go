// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	s := Default(3, filepath.Join(t.TempDir(), "state"), "/kubernetes")
	if err := Write(s, ""); err != nil {
		t.Fatal(err)
	}
	// Every file that a command line names is there.
	for _, process := range Processes(s) {
		for _, argument := range process.Args {
			_, file, _ := strings.Cut(argument, "=")
			if !strings.HasPrefix(file, s.StateDir) || strings.HasPrefix(argument, "--audit-log-path") {
				continue
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s %s: %v", process.Name, argument, err)
			}
		}
	}
	files, err := filepath.Glob(s.Dir("etc", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no configuration files: %v", err)
	}
	for _, file := range files {
		if file == s.RegistryHosts() {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "{{") || strings.Contains(string(text), "<no value>") {
			t.Errorf("%s is not rendered: %v\n%s", file, err, text)
		}
	}
}

func TestRegistryIsTrustedByEachName(t *testing.T) {
	s := Default(0, t.TempDir(), "/kubernetes")
	if err := os.Mkdir(s.Dir("pki"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeCredentials(s); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(s.RegistryCA())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in the CA file")
	}
	pair, err := tls.LoadX509KeyPair(s.Dir("pki", "registry.crt"), s.Dir("pki", "registry.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"localhost", "127.0.0.1", s.IP.Addr().String()}, Registries...) {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContainerdKnowsTheRegistry(t *testing.T) {
	s := Default(3, filepath.Join(t.TempDir(), "state"), "/kubernetes")
	if err := Write(s, ""); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(s.Dir("etc", "containerd.toml")); err != nil || !strings.Contains(string(text), s.RegistryHosts()) {
		t.Errorf("containerd.toml doesn't name %s: %v", s.RegistryHosts(), err)
	}
	for _, host := range []string{"10.97.3.2:5000", "quay.io"} {
		text, err := os.ReadFile(filepath.Join(s.RegistryHosts(), host, "hosts.toml"))
		if err != nil {
			t.Fatal(err)
		}
		want := "server = \"https://" + host + "\"\n\n[host.\"https://" + host + "\"]\n  ca = \"" + s.RegistryCA() + "\"\n"
		if string(text) != want {
			t.Errorf("%s: %s, want %s", host, text, want)
		}
	}
}
