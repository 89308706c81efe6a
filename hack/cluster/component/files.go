// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"bytes"
	"embed"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"text/template"
)

//go:embed files
var templates embed.FS

// SandboxImage is the image of the container that holds a pod's namespaces.
const SandboxImage = "quay.io/bpfman/pause:latest"

// directories are the directories to create in the state directory.
var directories = []string{"pki", "etc", "logs", "logs/pods", "etcd", "containerd", "kubelet", "manifests", "bpfman", "registry", "images", "mnt", "stopped"}

// Write creates the node's state directory, with everything that its components read when they
// start. Nodes other than the first copy its credentials from first, which is its state
// directory.
func Write(s Settings, first string) error {
	for _, dir := range directories {
		if err := os.MkdirAll(s.Dir(dir), 0o755); err != nil {
			return fmt.Errorf("create the cluster's directory %s: %w", dir, err)
		}
	}
	if s.HasControlPlane() {
		if err := writeCredentials(s); err != nil {
			return err
		}
	} else if err := copyCredentials(s, first); err != nil {
		return err
	}
	if err := writeNodeCredentials(s); err != nil {
		return err
	}
	if err := trustRegistry(s); err != nil {
		return err
	}
	return writeFiles(s)
}

// copyCredentials copies the credentials that a node needs, and the authority that signs the
// node's own certificates.
func copyCredentials(s Settings, first string) error {
	for _, name := range []string{"ca.crt", "ca.key", "registry-ca.crt", "admin-user.crt", "admin-user.key", "admin.kubeconfig", "kube-proxy.kubeconfig"} {
		text, err := os.ReadFile(filepath.Join(first, "pki", name))
		if err != nil {
			return fmt.Errorf("read the control plane's credentials: %w", err)
		}
		if err := os.WriteFile(s.Dir("pki", name), text, 0o600); err != nil {
			return fmt.Errorf("copy the control plane's credentials: %w", err)
		}
	}
	return nil
}

// trustRegistry makes containerd trust the cluster's registry, under each name that an image
// can have there, so that pods run the images that were pushed to it.
func trustRegistry(s Settings) error {
	for _, host := range append([]string{net.JoinHostPort(s.API.String(), RegistryPort)}, Registries...) {
		dir := filepath.Join(s.RegistryHosts(), host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create containerd's directory of the registry %s: %w", host, err)
		}
		text := fmt.Sprintf("server = %q\n\n[host.%[1]q]\n  ca = %q\n", "https://"+host, s.RegistryCA())
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("configure containerd for the registry %s: %w", host, err)
		}
	}
	return nil
}

// writeFiles renders the embedded templates to etc/.
func writeFiles(s Settings) error {
	all, err := template.ParseFS(templates, "files/*")
	if err != nil {
		return fmt.Errorf("parse the configuration files: %w", err)
	}
	data := struct {
		Settings
		Sandbox    string
		Registries []string
	}{s, SandboxImage, Registries}
	for _, t := range all.Templates() {
		var text bytes.Buffer
		if err := t.Execute(&text, data); err != nil {
			return fmt.Errorf("render %s: %w", t.Name(), err)
		}
		if err := os.WriteFile(s.Dir("etc", t.Name()), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", t.Name(), err)
		}
	}
	return nil
}

// Install copies files to fixed paths on the node. It runs inside the node.
func Install(s Settings) error {
	for name, target := range map[string]string{
		"hosts":        "/etc/hosts",
		"resolv.conf":  "/etc/resolv.conf",
		"cni.conflist": "/etc/cni/net.d/10-pods.conflist",
	} {
		text, err := os.ReadFile(s.Dir("etc", name))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
			return fmt.Errorf("create the directory of %s: %w", target, err)
		}
		// In the host's image, the file can be a symlink to another place.
		if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the host's %s: %w", target, err)
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return fmt.Errorf("install %s: %w", filepath.Base(target), err)
		}
	}
	return os.WriteFile("/etc/hostname", []byte(s.Node+"\n"), 0o644)
}
