// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Node holds the facts of this node that attach points depend on. It is plain
// data; package node gathers it.
type Node struct {
	Name string
	// Addresses are the Node object's addresses of type InternalIP.
	Addresses []netip.Addr
	// Interfaces are those of the host's network namespace, by name; nil where the
	// program's attach points don't need them (see Needs).
	Interfaces map[string]Interface
	// Containers are those of the pods on this node that have a sandbox;
	// ContainersErr tells why they can't be told.
	Containers    []Container
	ContainersErr error
}

// Interface is a network interface of the host.
type Interface struct {
	Index     int
	Addresses []netip.Addr
}

// Container is a container that runs or has run in its pod's present sandbox.
type Container struct {
	Namespace   string // of the pod
	Pod         string
	PodUID      string
	PodLabels   map[string]string
	HostNetwork bool
	Sandbox     string // its id: another sandbox has another network
	NetNS       string // the sandbox's network namespace, as a path of the host
	Name        string
	ID          string
	PID         int // in the host's PID namespace; 0 if it has ended
	// Interfaces are those of the pod's network namespace, and InterfacesErr tells
	// why they can't be told; for owners that need them.
	Interfaces    []string
	InterfacesErr error
}

// containerSelector is the API's selector of either scope, reduced to one.
type containerSelector struct {
	namespace string // "" is every namespace
	pods      metav1.LabelSelector
	names     *[]string // nil or empty is every container
}

func (s *containerSelector) match(n Node) ([]Container, error) {
	if n.ContainersErr != nil {
		return nil, n.ContainersErr
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.pods)
	if err != nil {
		return nil, fmt.Errorf("pod selector: %w", err)
	}
	var out []Container
	for _, c := range n.Containers {
		if s.namespace != "" && s.namespace != c.Namespace {
			continue
		}
		if s.names != nil && len(*s.names) > 0 && !slices.Contains(*s.names, c.Name) {
			continue
		}
		if selector.Matches(labels.Set(c.PodLabels)) {
			out = append(out, c)
		}
	}
	return out, nil
}

// running returns the matching containers that run.
func (s *containerSelector) running(n Node) ([]Container, error) {
	matching, err := s.match(n)
	return slices.DeleteFunc(matching, func(c Container) bool { return c.PID == 0 }), err
}

// onePerNetwork returns one container of each matching pod, that with the least name:
// the containers of a pod share its network namespace, which stays while
// they start again, and pods on the host's network share the host's.
func (s *containerSelector) onePerNetwork(n Node) ([]Container, error) {
	matching, err := s.match(n)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(matching, func(a, b Container) int {
		return strings.Compare(a.path(), b.path())
	})
	seen := map[string]bool{}
	var out []Container
	for _, c := range matching {
		network := c.PodUID
		if c.HostNetwork {
			network = "host"
		}
		if !seen[network] {
			seen[network] = true
			out = append(out, c)
		}
	}
	return out, nil
}

func (c Container) path() string { return c.Namespace + "/" + c.Pod + "/" + c.Name }

// netns is the pod's network namespace in the daemon's file system: the DaemonSet
// mounts the host's /proc at /host/proc. It is named by way of the sandbox, not of
// the container's process: the daemon (v0.6.0) keeps the path. It opens it again
// when it chains other programs there, and where it is gone at a detachment takes
// the namespace for deleted, and every program's dispatcher off.
// containerd names a namespace by the sandbox's process, CRI-O by a file.
func (c Container) netns() string {
	if strings.HasPrefix(c.NetNS, "/proc/") {
		return "/host" + c.NetNS
	}
	// An absolute symbolic link, as /var/run may be, would lead into the daemon's own files.
	path, isRun := strings.CutPrefix(c.NetNS, "/var/run/")
	if isRun {
		path = "/run/" + path
	}
	return "/host/proc/1/root" + path
}

// primaryInterface is the name of the interface that carries one of the node's
// InternalIP addresses, the first of them that any does.
func (n Node) primaryInterface() (string, error) {
	for _, address := range n.Addresses {
		var found []string
		for name, i := range n.Interfaces {
			if slices.Contains(i.Addresses, address) {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			return slices.Min(found), nil
		}
	}
	return "", fmt.Errorf("no interface of node %s has one of its internal addresses %v", n.Name, n.Addresses)
}
