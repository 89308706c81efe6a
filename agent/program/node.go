// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Node contains the state of this node that attach points depend on. Package node
// collects it.
type Node struct {
	Name string
	// Addresses contains the addresses of type InternalIP in the Node object.
	Addresses []netip.Addr
	// Interfaces contains the interfaces in the host's network namespace, by name. It is nil
	// if the program's attach points don't need them (see Needs).
	Interfaces map[string]Interface
	// Containers contains the containers of the pods on this node that have a sandbox, and the sandboxes.
	// ContainersErr is the reason why they are unknown.
	Containers    []Container
	ContainersErr error
	// Hosted means that each selector selects one pod instead, with the network of the node.
	Hosted bool
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, or
	// "*" for all.
	UprobeNamespaces []string
	Reserved         Reserved
}

// allowsUprobes reports whether namespaced uprobes of a namespace can be attached.
func (n Node) allowsUprobes(namespace string) bool {
	return slices.Contains(n.UprobeNamespaces, namespace) || slices.Contains(n.UprobeNamespaces, "*")
}

// Interface is a network interface of the host.
type Interface struct {
	Index     int
	Addresses []netip.Addr
}

// Container is a container that is running, or has run, in its pod's current sandbox, or the sandbox itself, without a name,
// ID, and PID. All fields except PodLabels come from the container runtime.
type Container struct {
	Namespace string // of the pod
	Pod       string
	PodUID    string
	PodLabels map[string]string
	// Deleted means that the API server doesn't have the pod, although it runs. Superseded means that
	// a newer pod has its name.
	Deleted, Superseded bool
	HostNetwork         bool
	HostPID             bool
	Sandbox             string // its ID: another sandbox has another network
	NetNS               string // the path of the sandbox's network namespace on the host
	Name                string
	ID                  string
	PID                 int // in the host's PID namespace; 0 if it has ended
	// Err is the reason why HostNetwork, HostPID, NetNS, and PID are unknown.
	Err error
	// Interfaces contains the interfaces in the pod's network namespace, if the owner needs
	// them. InterfacesErr is the reason why they are unknown: ErrUnseen while the pod has no
	// process.
	Interfaces    []string
	InterfacesErr error
}

// ErrUnseen means that the interfaces of a pod without a process are unknown. This isn't a failure: the
// pod's links stay, and its interfaces are attached to when it has a process.
var ErrUnseen = errors.New("no process of the pod is running")

// containerSelector is the API's selector, for cluster-scoped and namespaced programs.
type containerSelector struct {
	v1alpha1.ContainerSelector

	// tenant means that the program is namespaced, and has no rights outside of its namespace.
	tenant bool
}

// match returns the selected containers and sandboxes whose state is known, and those whose state isn't. Pods that the
// API server doesn't have are selected for cluster-scoped programs only.
func (s *containerSelector) match(n Node) (found, unknown []Container, err error) {
	switch {
	case n.Hosted:
		return []Container{{HostNetwork: true}}, nil, nil
	case n.ContainersErr != nil:
		return nil, nil, &AbsentError{n.ContainersErr}
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.Pods)
	if err != nil {
		return nil, nil, problem.Errorf(problem.PodSelectorInvalid, "pod selector: %w", err)
	}
	for _, c := range n.Containers {
		if s.Namespace != "" && s.Namespace != c.Namespace || s.tenant && c.Deleted || !s.named(c) {
			continue
		}
		switch {
		case !selector.Matches(labels.Set(c.PodLabels)):
		case c.Err != nil:
			unknown = append(unknown, c)
		default:
			found = append(found, c)
		}
	}
	return found, unknown, nil
}

// named reports whether the container's name is selected.
func (s *containerSelector) named(c Container) bool {
	names := s.ContainerNames
	return names == nil || len(*names) == 0 || slices.Contains(*names, c.Name)
}

// firstOf returns an error about containers whose state is unknown, or nil.
func firstOf(unknown []Container) error {
	switch len(unknown) {
	case 0:
		return nil
	case 1:
		return &AbsentError{unknown[0].Err}
	}
	return &AbsentError{fmt.Errorf("%w; and %d more containers", unknown[0].Err, len(unknown)-1)}
}

// running returns the selected containers that are running. An error means that others may be, too.
func (s *containerSelector) running(n Node) ([]Container, error) {
	matching, unknown, err := s.match(n)
	if err != nil {
		return nil, err
	}
	unknown = slices.DeleteFunc(unknown, func(c Container) bool { return c.ID == "" })
	return slices.DeleteFunc(matching, func(c Container) bool { return c.PID == 0 }), firstOf(unknown)
}

// onePerNetwork returns one container of each selected pod, the first one by name, or its sandbox. The
// containers of a pod share its network namespace, which stays the same when they
// restart. Pods with the host's network share one. An error means that other pods may be selected, too.
func (s *containerSelector) onePerNetwork(n Node) ([]Container, error) {
	matching, unknown, err := s.match(n)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(matching, func(a, b Container) int {
		return strings.Compare(a.path(), b.path())
	})
	seen, told := map[string]bool{}, map[string]bool{}
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
		told[c.Sandbox] = true
	}
	// A pod's network is known from one of its containers.
	return out, firstOf(slices.DeleteFunc(unknown, func(c Container) bool { return told[c.Sandbox] }))
}

// pod returns the pod's name for users. It is unique on the node.
func (c Container) pod() string {
	if c.Superseded {
		return c.Namespace + "/" + c.Pod + " (UID " + c.PodUID + ")"
	}
	return c.Namespace + "/" + c.Pod
}

func (c Container) path() string { return c.pod() + "/" + c.Name }

// netns returns the path of the pod's network namespace in the daemon's file system, in
// which the DaemonSet mounts the host's /proc at /host/proc. The path refers to the
// sandbox, and not to a process of the container, because the daemon (v0.6.0) stores it.
// The daemon opens the path again when it attaches other programs to the same interface.
// If the path doesn't exist at a detach, the daemon assumes that the namespace was
// deleted, and removes the dispatcher with all its programs. In containerd, the path
// contains the PID of the sandbox's process. In CRI-O, it is a file.
func (c Container) netns() string {
	if strings.HasPrefix(c.NetNS, "/proc/") {
		return "/host" + c.NetNS
	}
	// An absolute symbolic link, such as /var/run, would be resolved in the daemon's file
	// system.
	path, isRun := strings.CutPrefix(c.NetNS, "/var/run/")
	if isRun {
		path = "/run/" + path
	}
	return "/host/proc/1/root" + path
}

// Holder returns the process of the sandbox if the path of the network namespace contains its PID, or nil.
func (c Container) Holder() *Process {
	of, isProcess := strings.CutPrefix(c.NetNS, "/proc/")
	number, _, _ := strings.Cut(of, "/")
	pid, err := strconv.Atoi(number)
	if !isProcess || err != nil {
		return nil
	}
	return &Process{PID: pid, Of: c.Sandbox, Namespace: c.Namespace}
}

// primaryInterface returns the name of the interface with the first of the node's
// InternalIP addresses that any interface has.
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
	return "", absent(problem.NoPrimaryInterface, "no interface of node %s has one of its internal addresses %v", n.Name, n.Addresses)
}
