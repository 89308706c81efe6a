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

// Part is what of the cluster runs here.
type Part string

// A cluster is on one machine, or its one node is another machine, whose kernel is to run
// the programs: a virtual one, on this one. See README.md.
const (
	Whole        Part = "all"
	ControlPlane Part = "control-plane"
	Node         Part = "node"
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
	Part      Part
	// Uplink is the interface of this machine that the node gets, instead of a cable to
	// this machine.
	Uplink string
	// API is the address of the API server and the registry, and NodeIP the kubelet's:
	// IP, unless these run on two machines.
	API, NodeIP netip.Addr
	IP          netip.Prefix
	HostIP      netip.Prefix
	IP6         netip.Prefix
	HostIP6     netip.Prefix
	Pods        netip.Prefix
	Services    netip.Prefix
}

// Default are the settings of an instance of the cluster: 0, and others for
// tests that must not disturb it. They share nothing on the host.
func Default(instance uint8, stateDir, kubernetes string) Settings {
	prefix := func(format string) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf(format, instance))
	}
	ip := prefix("10.97.%d.2/24")
	return Settings{
		Part: Whole, API: ip.Addr(), NodeIP: ip.Addr(),
		StateDir:   stateDir,
		Kubernetes: kubernetes,
		Node:       "bpfman-node",
		Cgroup:     fmt.Sprintf("bpfman-cluster-%d", instance),
		Interface:  fmt.Sprintf("bpfman%d", instance),
		IP:         ip,
		HostIP:     prefix("10.97.%d.1/24"),
		IP6:        prefix("fd97:62:%x::2/64"),
		HostIP6:    prefix("fd97:62:%x::1/64"),
		Pods:       prefix("10.99.%d.0/24"),
		Services:   prefix("10.98.%d.0/24"),
	}
}

// NodeInterface is the control plane's end of the cable to a node that is another machine.
const NodeInterface = "node0"

// nodeCable is that cable's network, of which the node has the second address.
func (s Settings) nodeCable() (control, node netip.Prefix) {
	base := s.IP.Addr().As4()
	base[3] = 129
	control = netip.PrefixFrom(netip.AddrFrom4(base), 25)
	return control, netip.PrefixFrom(control.Addr().Next(), 25)
}

// NodeCable is the control plane's address on the cable to its node.
func (s Settings) NodeCable() netip.Prefix {
	control, _ := s.nodeCable()
	return control
}

// Split are the settings of a part of the cluster.
func (s Settings) Split(part Part, uplink string) Settings {
	control, node := s.nodeCable()
	s.Part, s.Uplink = part, uplink
	if part != Whole {
		s.NodeIP = node.Addr()
	}
	if part == Node {
		s.IP, s.HostIP = node, control
		s.IP6, s.HostIP6 = netip.Prefix{}, netip.Prefix{}
	}
	return s
}

// Registry is where the node finds the registry.
func (s Settings) Registry() netip.Addr {
	if s.Part == Node {
		return s.API
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
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
	return "https://" + net.JoinHostPort(s.API.String(), apiPort)
}

// Dir is a directory below the state directory.
func (s Settings) Dir(elem ...string) string {
	return filepath.Join(append([]string{s.StateDir}, elem...)...)
}

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (s Settings) AdminKubeconfig() string { return s.Dir("pki", "admin.kubeconfig") }

// RegistryCA is the certificate that signs the registry's.
func (s Settings) RegistryCA() string { return s.Dir("pki", "registry-ca.crt") }

// RegistryHosts is the directory in which containerd looks for what it needs to know
// about a registry.
func (s Settings) RegistryHosts() string { return s.Dir("etc", "certs.d") }

// Log is the file that the process of that name writes to.
func (s Settings) Log(process string) string { return s.Dir("logs", process+".log") }
