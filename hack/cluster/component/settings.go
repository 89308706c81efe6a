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

// MaxNodes is how many nodes a cluster can have: each knows the way to the pods of all.
const MaxNodes = 8

// Settings are the facts about a node and its cluster that the node's components are
// configured with.
type Settings struct {
	Instance   uint8
	ClusterDir string // everything that the cluster keeps on disk
	StateDir   string // the node's part of it; the first node's is all of it
	Kubernetes string // the multi-call binary of hack/kubernetes
	Number     int    // the node's, from 1 on: the first has the control plane and the registry
	Node       string // the node's name
	// ControlPlaneOnly has the first node run no pods.
	ControlPlaneOnly bool
	// Cgroup is the node's cgroup, in each hierarchy of the host.
	Cgroup string
	// HostInterface is the host's end of the cable to the cluster's network, and Port the
	// node's place there.
	HostInterface string
	Port          string
	// Uplink is the interface of this machine that the node gets, where the machine, a
	// virtual one, is there for the node: instead of a cable to the cluster's network.
	Uplink string
	// API is the address of the API server and the registry.
	API      netip.Addr
	IP       netip.Prefix
	HostIP   netip.Prefix
	IP6      netip.Prefix
	HostIP6  netip.Prefix
	Pods     netip.Prefix // the node's
	Services netip.Prefix
}

// Default are the settings of a node of an instance of the cluster. Instance 0 is for
// people, others are for tests that must not disturb it: they share nothing on the host.
// Nodes are numbered from 1 to MaxNodes.
func Default(instance uint8, clusterDir, kubernetes string, number int) Settings {
	prefix := func(format string, of ...any) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf(format, of...))
	}
	way := wayTo(instance, number)
	s := Settings{
		Instance:      instance,
		ClusterDir:    clusterDir,
		StateDir:      clusterDir,
		Kubernetes:    kubernetes,
		Number:        number,
		Node:          "bpfman-node",
		Cgroup:        fmt.Sprintf("bpfman-cluster-%d", instance),
		HostInterface: fmt.Sprintf("bpfman%d", instance),
		Port:          fmt.Sprintf("node%d", number),
		API:           wayTo(instance, 1).Node,
		IP:            netip.PrefixFrom(way.Node, 24),
		HostIP:        prefix("10.97.%d.1/24", instance),
		IP6:           prefix("fd97:62:%x::%x/64", instance, 1+number),
		HostIP6:       prefix("fd97:62:%x::1/64", instance),
		Pods:          way.Pods,
		Services:      prefix("10.98.%d.0/24", instance),
	}
	if number > 1 {
		s.Node = fmt.Sprintf("%s-%d", s.Node, number)
		s.Cgroup = fmt.Sprintf("%s-%d", s.Cgroup, number)
		s.StateDir = filepath.Join(clusterDir, s.Node)
	}
	return s
}

// HasControlPlane tells whether the node runs the control plane and the registry.
func (s Settings) HasControlPlane() bool { return s.Number == 1 }

// RunsPods tells whether the node is one of Kubernetes'.
func (s Settings) RunsPods() bool { return !s.HasControlPlane() || !s.ControlPlaneOnly }

// Way is the way to the pods of a node.
type Way struct {
	Pods netip.Prefix
	Node netip.Addr
}

func wayTo(instance uint8, number int) Way {
	return Way{
		Pods: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98 + byte(number), instance, 0}), 24),
		Node: netip.AddrFrom4([4]byte{10, 97, instance, 1 + byte(number)}),
	}
}

// Ways are those to the pods of each node that the cluster can have.
func (s Settings) Ways() []Way {
	ways := make([]Way, MaxNodes)
	for i := range ways {
		ways[i] = wayTo(s.Instance, 1+i)
	}
	return ways
}

// Registry is where the node finds the registry.
func (s Settings) Registry() netip.Addr {
	if s.HasControlPlane() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return s.API
}

// Registries are the names that the cluster's registry is served under. One is quay.io,
// so that the sample manifests, which name images there, work unchanged and offline.
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

// Dir is a directory below the node's state directory.
func (s Settings) Dir(elem ...string) string {
	return filepath.Join(append([]string{s.StateDir}, elem...)...)
}

// Network is the file that the namespace of the cluster's network is mounted on.
func (s Settings) Network() string { return filepath.Join(s.ClusterDir, "network") }

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (s Settings) AdminKubeconfig() string { return s.Dir("pki", "admin.kubeconfig") }

// RegistryCA is the certificate that signs the registry's.
func (s Settings) RegistryCA() string { return s.Dir("pki", "registry-ca.crt") }

// RegistryHosts is the directory in which containerd looks for what it needs to know
// about a registry.
func (s Settings) RegistryHosts() string { return s.Dir("etc", "certs.d") }

// Log is the file that the process of that name writes to.
func (s Settings) Log(process string) string { return s.Dir("logs", process+".log") }

// StopMark is the file that keeps the component of that name down while it exists.
func (s Settings) StopMark(component string) string { return s.Dir("stopped", component) }
