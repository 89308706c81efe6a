// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for number := 1; number <= 2; number++ {
		s := Default(3, dir, "/kubernetes", number)
		if err := Write(s, dir); err != nil {
			t.Fatal(err)
		}
		checkWritten(t, s)
	}
}

func checkWritten(t *testing.T, s Settings) {
	t.Helper()
	// Every file in a command line exists.
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
	s := Default(0, t.TempDir(), "/kubernetes", 1)
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
	s := Default(3, filepath.Join(t.TempDir(), "state"), "/kubernetes", 1)
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

func TestNodesShareNothing(t *testing.T) {
	seen := map[any]string{}
	ways := Default(3, "/state", "", 1).Ways()
	for _, instance := range []uint8{0, 3} {
		for number := 1; number <= MaxNodes; number++ {
			s := Default(instance, "/state", "", number)
			for _, own := range []any{s.IP.Addr(), s.IP6.Addr(), s.Pods, "cgroup " + s.Cgroup} {
				if other, ok := seen[own]; ok {
					t.Errorf("%v is %s's and node %d's of instance %d", own, other, number, instance)
				}
				seen[own] = s.Node
			}
			if way := ways[number-1]; instance == 3 && (way.Pods != s.Pods || way.Node != s.IP.Addr()) {
				t.Errorf("the way to node %d is %v, its pods are %s at %s", number, way, s.Pods, s.IP)
			}
		}
	}
}

func TestNodeThatJoins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, second := Default(3, dir, "/kubernetes", 1), Default(3, dir, "/kubernetes", 2)
	for _, s := range []Settings{first, second} {
		if err := Write(s, first.StateDir); err != nil {
			t.Fatal(err)
		}
	}
	if names := Names(second); !slices.Equal(names, []string{"containerd", "kubelet", "kube-proxy"}) {
		t.Errorf("the second node runs %v", names)
	}
	ca, err := os.ReadFile(first.Dir("pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for pair, options := range map[string]x509.VerifyOptions{
		"kubelet":      {DNSName: second.IP.Addr().String()},
		"kubelet-user": {KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		own, err := tls.LoadX509KeyPair(second.Dir("pki", pair+".crt"), second.Dir("pki", pair+".key"))
		if err != nil {
			t.Fatal(err)
		}
		options.Roots = roots
		if _, err := own.Leaf.Verify(options); err != nil {
			t.Errorf("%s: %v", pair, err)
		}
		if pair == "kubelet-user" && own.Leaf.Subject.CommonName != "system:node:bpfman-node-2" {
			t.Errorf("the kubelet is %s", own.Leaf.Subject)
		}
	}
}
