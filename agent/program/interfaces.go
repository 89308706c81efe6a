// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/printable"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// onNetwork contains what XDP, TC, and TCX programs have in common. They are
// attached to interfaces of the host or of pods.
type onNetwork struct {
	function
	interfaces v1alpha1.InterfaceSelector
	containers *containerSelector
	priority   int32
}

// Needs returns which state of the node the attach points depend on. The host's
// list doesn't contain interfaces in pods, but the primary interface's name is
// taken from it. Pods with the host's network have the host's interfaces.
func (o onNetwork) Needs() Needs {
	discovers := o.interfaces.InterfacesDiscoveryConfig != nil
	return Needs{
		Interfaces:    o.containers == nil || o.interfaces.PrimaryNodeInterface != nil || discovers,
		Containers:    o.containers != nil,
		PodInterfaces: o.containers != nil && discovers,
	}
}

// matchesPod reports whether a pod on the node is selected.
func (o onNetwork) matchesPod(n Node) bool {
	matching, unknown, err := o.containers.match(n)
	return err == nil && len(matching) > 0 && len(unknown) == 0
}

// choices returns a message if primarynodeinterface is false, because only its
// presence matters.
func (o onNetwork) choices() []problem.Note {
	if primary := o.interfaces.PrimaryNodeInterface; primary != nil && !*primary {
		return []problem.Note{problem.Notef(problem.FieldWithoutEffect, "primarynodeinterface: false also selects the primary interface")}
	}
	return nil
}

// selection selects interfaces of a network namespace. If interfaces are named,
// it selects them even if they don't exist.
type selection struct {
	named      []string
	discovered *discovery
}

func (s selection) of(there []string) []string {
	if s.discovered != nil {
		return s.discovered.of(there)
	}
	return s.named
}

func (o onNetwork) selection(n Node) (selection, error) {
	switch {
	case o.interfaces.PrimaryNodeInterface != nil:
		primary, err := n.primaryInterface()
		return selection{named: []string{primary}}, err
	case o.interfaces.Interfaces != nil:
		// Duplicate names are one attach point.
		return selection{named: slices.Compact(slices.Sorted(slices.Values(*o.interfaces.Interfaces)))}, nil
	}
	discovered, err := discoveryOf(o.interfaces.InterfacesDiscoveryConfig)
	return selection{discovered: discovered}, err
}

// attachPoints calls info for each selected interface. What distinguishes the
// attach points of one interface in their names, for example by the direction. A namespaced
// program can't be attached to the interfaces of the node, which all its pods share, not
// even through a pod that uses them.
func (o onNetwork) attachPoints(n Node, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) ([]AttachPoint, error) {
	selected, err := o.selection(n)
	if err != nil {
		return nil, err
	}
	host := network{names: selected.of(slices.Collect(maps.Keys(n.Interfaces)))}
	if o.containers == nil {
		networks, err := selected.bounded([]network{host})
		return selected.points(n, networks, what, info), err
	}
	containers, err := o.containers.onePerNetwork(n)
	untold := []error{err}
	unseen := false
	var points []AttachPoint
	var networks []network
	for i, c := range containers {
		switch {
		case c.HostNetwork && o.containers.tenant:
			refused := newAttachPoint("interfaces"+v1alpha1.InPod+c.pod(), nil, "")
			refused.Lack = problem.Errorf(problem.HostNetwork, "the pod uses the network of the node (hostNetwork), where namespaced programs aren't attached")
			points = append(points, refused)
		case c.HostNetwork:
			networks = append(networks, host)
		default:
			networks = append(networks, network{&containers[i], selected.of(c.Interfaces)})
			if selected.discovered == nil {
				continue
			}
			if errors.Is(c.InterfacesErr, ErrUnseen) {
				unseen = true
			} else {
				untold = append(untold, c.InterfacesErr)
			}
		}
	}
	networks, excess := selected.bounded(networks)
	points = append(points, selected.points(n, networks, what, info)...)
	if refusal := o.refusal(n); refusal != nil {
		for i := range points {
			points[i].Lack, points[i].Withdrawn = refusal, true
		}
	}
	switch err = errors.Join(untold...); {
	case err != nil:
		return points, err
	case unseen:
		return points, ErrUnseen
	}
	return points, excess
}

// network is a network namespace with the names of the interfaces that are selected there.
type network struct {
	pod   *Container // nil for the node's
	names []string
}

// points returns the attach points in networks.
func (s selection) points(n Node, networks []network, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) []AttachPoint {
	var points []AttachPoint
	for _, in := range networks {
		if in.pod == nil {
			points = append(points, onHost(n, in.names, what, info)...)
		} else {
			points = append(points, inPod(*in.pod, in.names, what, info)...)
		}
	}
	for i := range points {
		points[i].Discovered = s.discovered != nil
	}
	return points
}

// The kernel accepts almost any bytes in the name of an interface, which root in a pod can choose. Reports have texts in UTF-8,
// and no two links of one name. The inspector has the same names.

// onHost returns the attach points on the host's interfaces.
func onHost(n Node, names []string, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) []AttachPoint {
	points := make([]AttachPoint, 0, len(names))
	for _, name := range names {
		i, there := n.Interfaces[name]
		point := newAttachPoint(printable.Text(name)+what, info(name, nil), strconv.Itoa(i.Index))
		if !there && n.Interfaces != nil {
			point.Lack = n.lacks(name)
		}
		points = append(points, point)
	}
	return points
}

// lacks returns the error for a missing interface. It names the node's primary one, because the names of interfaces
// differ between nodes, and not all, because those of pods appear and disappear.
func (n Node) lacks(name string) error {
	has := ""
	if primary, err := n.primaryInterface(); err == nil {
		has = "; its primary interface is " + primary
	}
	return absent(problem.NoSuchInterface, "the node has no interface %s%s", name, has)
}

// OnNode reports whether an attach point with this name, of which nothing else is known, is at an interface of the node. Their names have no spaces.
func (m Member) OnNode(point string) bool {
	_, isNetwork := m.Spec.(interface{ matchesPod(Node) bool })
	return isNetwork && !strings.Contains(point, v1alpha1.InPod)
}

// inPod returns the attach points in a pod's network namespace.
func inPod(c Container, names []string, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) []AttachPoint {
	netns := c.netns()
	points := make([]AttachPoint, 0, len(names))
	for _, name := range names {
		// The digest doesn't include the path, because the network namespace doesn't
		// change during the sandbox's life.
		point := newAttachPoint(printable.Text(name)+what+v1alpha1.InPod+c.pod(), info(name, nil), c.Sandbox)
		point.Info, point.Process, point.In = info(name, &netns), c.Holder(), c.Sandbox
		if c.NetNS == "" {
			point.Lack = absent(problem.PodGone, "the container runtime doesn't report the pod's network namespace")
		}
		points = append(points, point)
	}
	return points
}

// bounded limits the number of discovered interfaces, of which each network has its share: networks take turns, so that a pod
// with many interfaces doesn't keep the program from the others. What a network has up to its share doesn't depend on the
// others' interfaces. Named interfaces have no limit.
func (s selection) bounded(networks []network) ([]network, error) {
	found := 0
	for _, in := range networks {
		found += len(in.names)
	}
	if s.discovered == nil || found <= mostDiscovered {
		return networks, nil
	}
	shares := make([]int, len(networks))
	for left := mostDiscovered; left > 0; {
		for i, in := range networks {
			if left > 0 && shares[i] < len(in.names) {
				shares[i]++
				left--
			}
		}
	}
	bounded := slices.Clone(networks)
	for i, share := range shares {
		bounded[i].names = bounded[i].names[:share]
	}
	return bounded, &ExcessError{Found: found}
}
