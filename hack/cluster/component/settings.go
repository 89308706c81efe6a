// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package component knows the components that make up the cluster: their
// certificates, configuration files and command lines.
package component

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
)

// Settings are the facts about the cluster that its components are configured with.
type Settings struct {
	StateDir   string // everything that the cluster keeps on disk
	Kubernetes string // the multi-call binary of hack/kubernetes
	Node       string // the node's name
	// Cgroup is the node's cgroup, in each hierarchy of the host, and
	// Interface the host's end of the cable to the node.
	Cgroup    string
	Interface string
	IP        netip.Prefix
	HostIP    netip.Prefix
	IP6       netip.Prefix
	HostIP6   netip.Prefix
	Pods      netip.Prefix
	Services  netip.Prefix
}

// Default are the settings of an instance of the cluster: 0, and others for
// tests that must not disturb it. They share nothing on the host.
func Default(instance uint8, stateDir, kubernetes string) Settings {
	prefix := func(format string) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf(format, instance))
	}
	return Settings{
		StateDir:   stateDir,
		Kubernetes: kubernetes,
		Node:       "bpfman-node",
		Cgroup:     fmt.Sprintf("bpfman-cluster-%d", instance),
		Interface:  fmt.Sprintf("bpfman%d", instance),
		IP:         prefix("10.97.%d.2/24"),
		HostIP:     prefix("10.97.%d.1/24"),
		IP6:        prefix("fd97:62:%x::2/64"),
		HostIP6:    prefix("fd97:62:%x::1/64"),
		Pods:       prefix("10.99.%d.0/24"),
		Services:   prefix("10.98.%d.0/24"),
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
