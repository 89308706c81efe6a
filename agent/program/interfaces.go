// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
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
// but the name of the primary one does.
func (o onNetwork) Needs() Needs {
	return Needs{
		Interfaces: o.containers == nil || o.interfaces.PrimaryNodeInterface != nil,
		Containers: o.containers != nil,
	}
}

// choices says that the presence of primarynodeinterface counts, not its value.
func (o onNetwork) choices() []string {
	if primary := o.interfaces.PrimaryNodeInterface; primary != nil && !*primary {
		return []string{"primarynodeinterface: false selects the primary interface, as true does"}
	}
	return nil
}

// attachPoints calls info for each selected interface. What is the words that
// tell the attach points of one interface apart, such as the direction.
func (o onNetwork) attachPoints(n Node, what string, info func(iface string, netns *string) *gobpfman.AttachInfo) ([]AttachPoint, error) {
	var names []string
	switch {
	case o.interfaces.PrimaryNodeInterface != nil:
		primary, err := n.primaryInterface()
		if err != nil {
			return nil, err
		}
		names = []string{primary}
	case o.interfaces.Interfaces != nil:
		// A name given twice is one attach point.
		names = slices.Compact(slices.Sorted(slices.Values(*o.interfaces.Interfaces)))
	}

	onHost := func() []AttachPoint {
		points := make([]AttachPoint, 0, len(names))
		for _, name := range names {
			i, there := n.Interfaces[name]
			point := newAttachPoint(name+what, info(name, nil), strconv.Itoa(i.Index))
			if !there {
				point.Lack = "the node has no interface " + name
			}
			points = append(points, point)
		}
		return points
	}
	if o.containers == nil {
		return onHost(), nil
	}

	containers, err := o.containers.onePerNetwork(n)
	if err != nil {
		return nil, err
	}
	var points []AttachPoint
	for _, c := range containers {
		if c.HostNetwork {
			points = append(points, onHost()...)
			continue
		}
		netns := c.netns()
		for _, name := range names {
			// The network is the sandbox's for life: the path doesn't count.
			point := newAttachPoint(name+what+" in pod "+c.Namespace+"/"+c.Pod, info(name, nil), c.Sandbox)
			point.Info = info(name, &netns)
			if c.NetNS == "" {
				point.Lack = "the container runtime doesn't tell the pod's network namespace"
			}
			points = append(points, point)
		}
	}
	return points, nil
}
