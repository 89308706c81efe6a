// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// onNetwork is what XDP, TC and TCX programs have in common: they are attached
// to interfaces, of the host or of pods.
type onNetwork struct {
	interfaces v1alpha1.InterfaceSelector
	containers *containerSelector
}

// Needs tells that interfaces inside a pod don't appear in the host's list,
// but the name of the primary one does. Pods on the host's network have the
// host's interfaces.
func (o onNetwork) Needs() Needs {
	discovers := o.interfaces.InterfacesDiscoveryConfig != nil
	return Needs{
		Interfaces:    o.containers == nil || o.interfaces.PrimaryNodeInterface != nil || discovers,
		Containers:    o.containers != nil,
		PodInterfaces: o.containers != nil && discovers,
	}
}

// choices says that the presence of primarynodeinterface counts, not its value.
func (o onNetwork) choices() []string {
	if primary := o.interfaces.PrimaryNodeInterface; primary != nil && !*primary {
		return []string{"primarynodeinterface: false also selects the primary interface"}
	}
	return nil
}

// selection tells which of the interfaces that a network has are selected, or,
// where they are named, which ones it should have.
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
		// A name given twice is one attach point.
		return selection{named: slices.Compact(slices.Sorted(slices.Values(*o.interfaces.Interfaces)))}, nil
	}
	discovered, err := discoveryOf(o.interfaces.InterfacesDiscoveryConfig)
	return selection{discovered: discovered}, err
}

// attachPoints calls info for each selected interface. What is the words that
// tell the attach points of one interface apart, such as the direction.
func (o onNetwork) attachPoints(n Node, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) ([]AttachPoint, error) {
	selected, err := o.selection(n)
	if err != nil {
		return nil, err
	}
	onHost := func() []AttachPoint {
		names := selected.of(slices.Collect(maps.Keys(n.Interfaces)))
		points := make([]AttachPoint, 0, len(names))
		for _, name := range names {
			i, there := n.Interfaces[name]
			point := newAttachPoint(name+what, info(name, nil), strconv.Itoa(i.Index))
			if !there && n.Interfaces != nil {
				point.Lack = "the node has no interface " + name
			}
			points = append(points, point)
		}
		return points
	}
	if o.containers == nil {
		return selected.bounded(onHost(), nil)
	}

	containers, err := o.containers.onePerNetwork(n)
	if err != nil {
		return nil, err
	}
	var points []AttachPoint
	var untold []error
	for _, c := range containers {
		if c.HostNetwork {
			points = append(points, onHost()...)
			continue
		}
		if selected.discovered != nil && c.InterfacesErr != nil {
			untold = append(untold, c.InterfacesErr)
		}
		netns := c.netns()
		for _, name := range selected.of(c.Interfaces) {
			// The network is the sandbox's for life: the path doesn't count.
			point := newAttachPoint(name+what+" in pod "+c.Namespace+"/"+c.Pod, info(name, nil), c.Sandbox)
			point.Info = info(name, &netns)
			if c.NetNS == "" {
				point.Lack = "the container runtime doesn't report the pod's network namespace"
			}
			points = append(points, point)
		}
	}
	return selected.bounded(points, errors.Join(untold...))
}

// bounded keeps to what a program is attached to at most, where users don't say
// how many they are.
func (s selection) bounded(points []AttachPoint, err error) ([]AttachPoint, error) {
	if s.discovered == nil {
		return points, err
	}
	for i := range points {
		points[i].Discovered = true
	}
	found := len(points)
	if found > mostDiscovered {
		points = points[:mostDiscovered]
		if err == nil {
			err = &ExcessError{Found: found}
		}
	}
	return points, err
}
