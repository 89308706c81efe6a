// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/printable"
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
func (o onNetwork) choices() []string {
	if primary := o.interfaces.PrimaryNodeInterface; primary != nil && !*primary {
		return []string{"primarynodeinterface: false also selects the primary interface"}
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
	if o.containers == nil {
		return selected.bounded(selected.onHost(n, what, info), nil)
	}
	containers, err := o.containers.onePerNetwork(n)
	untold := []error{err}
	unseen := false
	var points []AttachPoint
	for _, c := range containers {
		switch {
		case c.HostNetwork && o.containers.tenant:
			refused := newAttachPoint("interfaces in pod "+c.pod(), nil, "")
			refused.Lack = errors.New("the pod uses the network of the node (hostNetwork), where namespaced programs aren't attached")
			points = append(points, refused)
		case c.HostNetwork:
			points = append(points, selected.onHost(n, what, info)...)
		default:
			points = append(points, selected.inPod(c, what, info)...)
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
	if refusal := o.refusal(n); refusal != nil {
		for i := range points {
			points[i].Lack, points[i].Withdrawn = refusal, true
		}
	}
	if err = errors.Join(untold...); err == nil && unseen {
		err = ErrUnseen
	}
	return selected.bounded(points, err)
}

// The kernel accepts almost any bytes in the name of an interface, which root in a pod can choose. Reports have texts in UTF-8,
// and no two links of one name. The inspector has the same names.

// onHost returns the attach points on the host's interfaces.
func (s selection) onHost(n Node, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) []AttachPoint {
	names := s.of(slices.Collect(maps.Keys(n.Interfaces)))
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
	text := "the node has no interface " + name
	if primary, err := n.primaryInterface(); err == nil {
		text += "; its primary interface is " + primary
	}
	return &AbsentError{text}
}

// inPod returns the attach points in a pod's network namespace.
func (s selection) inPod(c Container, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) []AttachPoint {
	netns := c.netns()
	names := s.of(c.Interfaces)
	points := make([]AttachPoint, 0, len(names))
	for _, name := range names {
		// The digest doesn't include the path, because the network namespace doesn't
		// change during the sandbox's life.
		point := newAttachPoint(printable.Text(name)+what+" in pod "+c.pod(), info(name, nil), c.Sandbox)
		point.Info, point.Process, point.In = info(name, &netns), c.Holder(), c.Sandbox
		if c.NetNS == "" {
			point.Lack = &AbsentError{"the container runtime doesn't report the pod's network namespace"}
		}
		points = append(points, point)
	}
	return points
}

// bounded limits the number of discovered interfaces, of which each network has its share.
// Named interfaces have no limit.
func (s selection) bounded(points []AttachPoint, err error) ([]AttachPoint, error) {
	if s.discovered == nil {
		return points, err
	}
	for i := range points {
		points[i].Discovered = true
	}
	found := len(points)
	if found > mostDiscovered {
		points = shared(points)
		if err == nil {
			err = &ExcessError{Found: found}
		}
	}
	return points, err
}

// shared returns mostDiscovered points. Networks take turns, each with its points in their order, so
// that a pod with many interfaces doesn't keep the program from the others. What a network has up to its
// share doesn't depend on the others' interfaces.
func shared(points []AttachPoint) []AttachPoint {
	turns, taken := make([]int, len(points)), map[string]int{}
	order := make([]int, len(points))
	for i, point := range points {
		order[i], turns[i] = i, taken[point.In]
		taken[point.In]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turns[a], turns[b]) })
	out := make([]AttachPoint, 0, mostDiscovered)
	for _, i := range slices.Sorted(slices.Values(order[:mostDiscovered])) {
		out = append(out, points[i])
	}
	return out
}
