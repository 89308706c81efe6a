// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package component defines the components of the cluster: their certificates,
// configuration files, and command lines.
package component

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
)

// MaxNodes is the maximum number of nodes in a cluster. Each node has routes to the pods
// of all others.
const MaxNodes = 8

// Settings are the settings of a node and its cluster, from which the node's components
// are configured.
type Settings struct {
	Instance   uint8
	ClusterDir string // all files of the cluster
	StateDir   string // the node's part of it; for the first node, it is the same directory
	Kubernetes string // the multi-call binary of hack/kubernetes
	Containerd string // the directory of containerd and its shim; if it is "", they are looked up in PATH
	Number     int    // starts at 1; the first node has the control plane and the registry
	Node       string // the name of the Node object
	// ControlPlaneOnly means that no pods run on the first node.
	ControlPlaneOnly bool
	// Cgroup is the name of the node's cgroup in each hierarchy of the host.
	Cgroup string
	// HostInterface is the host's end of the cable to the cluster's network. Port is the
	// node's port there.
	HostInterface string
	Port          string
	// Uplink is the interface of this machine that the node gets, instead of a cable to
	// the cluster's network. It is set if the machine is a virtual machine that is only
	// there for the node.
	Uplink string
	// API is the address of the API server and the registry.
	API      netip.Addr
	IP       netip.Prefix
	HostIP   netip.Prefix
	IP6      netip.Prefix
	HostIP6  netip.Prefix
	Pods     netip.Prefix // on the node
	Services netip.Prefix
}

// Default returns the settings of a node in an instance of the cluster. Instance 0 is
// for developers. Other instances are for tests, and share nothing with it on the host.
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

// HasControlPlane reports whether the node runs the control plane and the registry.
func (s Settings) HasControlPlane() bool { return s.Number == 1 }

// RunsPods reports whether the node is a node in Kubernetes.
func (s Settings) RunsPods() bool { return !s.HasControlPlane() || !s.ControlPlaneOnly }

// Way is a route to the pods of a node.
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

// Ways returns the routes to the pods of all nodes that the cluster can have.
func (s Settings) Ways() []Way {
	ways := make([]Way, MaxNodes)
	for i := range ways {
		ways[i] = wayTo(s.Instance, 1+i)
	}
	return ways
}

// Registry is the address at which the node reaches the registry.
func (s Settings) Registry() netip.Addr {
	if s.HasControlPlane() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return s.API
}

// Registries are the names under which the cluster's registry is served. One of them is
// quay.io, so that the sample manifests, which use images there, work unchanged and
// offline.
var Registries = []string{"registry.bpfman.test", "quay.io"}

const (
	apiPort = "6443"
	// RegistryPort is the registry's own port. It is also served on port 443, which is
	// the default in image references.
	RegistryPort = "5000"
)

// Server returns the URL of the API server.
func (s Settings) Server() string {
	return "https://" + net.JoinHostPort(s.API.String(), apiPort)
}

// Dir returns a path in the node's state directory.
func (s Settings) Dir(elem ...string) string {
	return filepath.Join(append([]string{s.StateDir}, elem...)...)
}

// Network is the file on which the network namespace of the cluster's network is
// mounted.
func (s Settings) Network() string { return filepath.Join(s.ClusterDir, "network") }

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (s Settings) AdminKubeconfig() string { return s.Dir("pki", "admin.kubeconfig") }

// RegistryCA is the certificate of the authority that signs the registry's certificate.
func (s Settings) RegistryCA() string { return s.Dir("pki", "registry-ca.crt") }

// RegistryHosts is the directory with containerd's configuration of registries.
func (s Settings) RegistryHosts() string { return s.Dir("etc", "certs.d") }

// containerd returns the path of a command of containerd, or "" if it is looked up in PATH.
func (s Settings) containerd(command string) string {
	if s.Containerd == "" {
		return ""
	}
	return filepath.Join(s.Containerd, command)
}

// Shim is the path of containerd's shim for runc, or "" if containerd finds it.
func (s Settings) Shim() string { return s.containerd("containerd-shim-runc-v2") }

// Log returns the log file of the process with that name.
func (s Settings) Log(process string) string { return s.Dir("logs", process+".log") }

// StopMark returns the file that prevents the component from running while it exists.
func (s Settings) StopMark(component string) string { return s.Dir("stopped", component) }
