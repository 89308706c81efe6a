// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package component knows the components that make up the cluster: their
// certificates, configuration files and command lines.
package component

import (
	"net"
	"net/netip"
	"path/filepath"
)

// Settings are the facts about the cluster that its components are configured with.
type Settings struct {
	StateDir   string // everything that the cluster keeps on disk
	Kubernetes string // the multi-call binary of hack/kubernetes
	Node       string // the node's name
	IP         netip.Prefix
	HostIP     netip.Prefix
	IP6        netip.Prefix
	HostIP6    netip.Prefix
	Pods       netip.Prefix
	Services   netip.Prefix
}

// Default are the settings that the one-node cluster is run with; the
// directory and the binary are the caller's.
func Default(stateDir, kubernetes string) Settings {
	return Settings{
		StateDir:   stateDir,
		Kubernetes: kubernetes,
		Node:       "bpfman-node",
		IP:         netip.MustParsePrefix("10.97.0.2/24"),
		HostIP:     netip.MustParsePrefix("10.97.0.1/24"),
		IP6:        netip.MustParsePrefix("fd97:62::2/64"),
		HostIP6:    netip.MustParsePrefix("fd97:62::1/64"),
		Pods:       netip.MustParsePrefix("10.99.0.0/24"),
		Services:   netip.MustParsePrefix("10.98.0.0/16"),
	}
}

// Registries are the names that the cluster's registry is served under, on the
// node's loopback. One is quay.io, so that the sample manifests, which name
// images there, work unchanged and offline.
var Registries = []string{"registry.bpfman.test", "quay.io"}

const (
	apiPort = "6443"
	// RegistryPort is the registry's own; it is also served on 443, the port
	// that an image reference without one means.
	RegistryPort = "5000"
)

// Server is the API server's URL.
func (s Settings) Server() string {
	return "https://" + net.JoinHostPort(s.IP.Addr().String(), apiPort)
}

// Dir is a directory below the state directory.
func (s Settings) Dir(elem ...string) string {
	return filepath.Join(append([]string{s.StateDir}, elem...)...)
}

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (s Settings) AdminKubeconfig() string { return s.Dir("pki", "admin.kubeconfig") }

// RegistryCA is the certificate that signs the registry's.
func (s Settings) RegistryCA() string { return s.Dir("pki", "registry-ca.crt") }

// Log is the file that the process of that name writes to.
func (s Settings) Log(process string) string { return s.Dir("logs", process+".log") }
