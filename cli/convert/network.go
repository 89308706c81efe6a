// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"fmt"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// attachment describes where a converted member is attached to the network.
type attachment struct {
	interfaces v1alpha1.InterfaceSelector
	containers *v1alpha1.ContainerSelector
	priority   int32
}

// network converts the common fields of XDP, TC, and TCX links. The result is one
// attachment, except for upstream's discovery without network namespaces: that finds
// interfaces of the host, and of the network namespaces below /run/netns, which belong
// to pods.
func (c *conversion) network(path string, in upstreamNetwork) []attachment {
	out := attachment{interfaces: c.interfaces(path+".interfaceSelector", in.InterfaceSelector), priority: defaultPriority}
	if in.Priority != nil {
		out.priority = *in.Priority
	}
	d := out.interfaces.InterfacesDiscoveryConfig
	discovers := d != nil && d.InterfaceAutoDiscovery != nil && *d.InterfaceAutoDiscovery
	if in.NetworkNamespaces != nil {
		switch {
		case discovers && c.namespaced:
			c.note(path+".interfaceSelector.interfacesDiscoveryConfig", "upstream's v0.6 doesn't implement discovery in a BpfApplication, and never attaches the program; the result is attached in the selected pods")
		case discovers:
			c.note(path+".networkNamespaces", "upstream's v0.6 ignores it with discovery, and attaches on the host and in every network namespace; the result is attached only in the selected pods")
		}
		out.containers = c.pods(path+".networkNamespaces", *in.NetworkNamespaces)
		return []attachment{out}
	}
	if c.namespaced {
		c.fail(path+".networkNamespaces", "required in a BpfApplication, which is namespaced")
	}
	if !discovers {
		return []attachment{out}
	}
	c.note(path+".interfaceSelector.interfacesDiscoveryConfig",
		"converted to two members, one for the host's interfaces and one for those of all pods, because upstream's v0.6 discovers both; other network namespaces are left out")
	inPods := out
	inPods.containers = &v1alpha1.ContainerSelector{}
	return []attachment{out, inPods}
}

func (c *conversion) interfaces(path string, in upstreamInterfaces) v1alpha1.InterfaceSelector {
	var out v1alpha1.InterfaceSelector
	const nothing = "selects no interface, which is an error in upstream's v0.6; the result is loaded, and attached to no interface"
	chosen := 0
	if d := in.InterfacesDiscoveryConfig; d != nil {
		chosen++
		out.InterfacesDiscoveryConfig = &v1alpha1.InterfaceDiscovery{
			InterfaceAutoDiscovery: d.InterfaceAutoDiscovery, ExcludeInterfaces: d.ExcludeInterfaces, AllowedInterfaces: d.AllowedInterfaces,
		}
		if d.InterfaceAutoDiscovery == nil || !*d.InterfaceAutoDiscovery {
			c.note(path+".interfacesDiscoveryConfig.interfaceAutoDiscovery", "not true: "+nothing)
		}
	}
	if in.Interfaces != nil {
		chosen++
		out.Interfaces = in.Interfaces
		if len(*in.Interfaces) == 0 {
			c.note(path+".interfaces", "empty: "+nothing)
		}
	}
	if in.PrimaryNodeInterface != nil {
		chosen++
		out.PrimaryNodeInterface = new(true)
		if !*in.PrimaryNodeInterface {
			c.note(path+".primaryNodeInterface", "converted to true: upstream's v0.6 treats false as true")
		}
	}
	if chosen != 1 {
		c.fail(path, "exactly one of interfacesDiscoveryConfig, interfaces and primaryNodeInterface is required")
	}
	return out
}

// nowhere returns the attachment of a member without links.
func (c *conversion) nowhere() attachment {
	out := attachment{interfaces: v1alpha1.InterfaceSelector{Interfaces: &[]string{}}, priority: defaultPriority}
	if c.namespaced {
		out.containers = &v1alpha1.ContainerSelector{}
	}
	return out
}

func (c *conversion) xdp(path, function string, links []upstreamXDPLink) members {
	info := func(common v1alpha1.BpfProgramCommon, a attachment) *v1alpha1.XdpProgramInfo {
		return &v1alpha1.XdpProgramInfo{BpfProgramCommon: common, InterfaceSelector: a.interfaces, Containers: a.containers, Priority: a.priority}
	}
	if len(links) == 0 {
		return members{{XDP: info(c.loaded(path, function, ""), c.nowhere())}}
	}
	var out members
	for i, link := range links {
		at := fmt.Sprintf("%s[%d]", path, i)
		proceedOn := results(c, at+".proceedOn", link.ProceedOn, xdpResults)
		for _, a := range c.network(at, link.upstreamNetwork) {
			member := info(attached(function), a)
			member.ProceedOn = proceedOn
			out = append(out, v1alpha1.BpfApplicationProgram{XDP: member})
		}
	}
	return out
}

func (c *conversion) tc(path, function string, links []upstreamTCLink) members {
	info := func(common v1alpha1.BpfProgramCommon, a attachment, direction string) *v1alpha1.TcProgramInfo {
		return &v1alpha1.TcProgramInfo{BpfProgramCommon: common, InterfaceSelector: a.interfaces, Containers: a.containers, Priority: a.priority, Direction: direction}
	}
	if len(links) == 0 {
		return members{{TC: info(c.loaded(path, function, "direction: ingress"), c.nowhere(), "ingress")}}
	}
	var out members
	for i, link := range links {
		at := fmt.Sprintf("%s[%d]", path, i)
		proceedOn := results(c, at+".proceedOn", link.ProceedOn, tcResults)
		direction := c.direction(at+".direction", link.Direction)
		for _, a := range c.network(at, link.upstreamNetwork) {
			member := info(attached(function), a, direction)
			member.ProceedOn = proceedOn
			out = append(out, v1alpha1.BpfApplicationProgram{TC: member})
		}
	}
	return out
}

func (c *conversion) tcx(path, function string, links []upstreamTCXLink) members {
	info := func(common v1alpha1.BpfProgramCommon, a attachment, direction string) *v1alpha1.TcxProgramInfo {
		return &v1alpha1.TcxProgramInfo{BpfProgramCommon: common, InterfaceSelector: a.interfaces, Containers: a.containers, Priority: a.priority, Direction: direction}
	}
	if len(links) == 0 {
		return members{{TCX: info(c.loaded(path, function, "direction: ingress"), c.nowhere(), "ingress")}}
	}
	var out members
	for i, link := range links {
		at := fmt.Sprintf("%s[%d]", path, i)
		direction := c.direction(at+".direction", link.Direction)
		for _, a := range c.network(at, link.upstreamNetwork) {
			out = append(out, v1alpha1.BpfApplicationProgram{TCX: info(attached(function), a, direction)})
		}
	}
	return out
}

var xdpResults = map[string]v1alpha1.XdpProceedOnValue{
	"Aborted": "aborted", "Drop": "drop", "Pass": "pass", "TX": "tx", "ReDirect": "redirect", "DispatcherReturn": "dispatcher_return",
}

var tcResults = map[string]v1alpha1.TcProceedOnValue{
	"UnSpec": "unspec", "OK": "ok", "ReClassify": "reclassify", "Shot": "shot", "Pipe": "pipe", "Stolen": "stolen", "Queued": "queued",
	"Repeat": "repeat", "ReDirect": "redirect", "Trap": "trap", "DispatcherReturn": "dispatcher_return",
}
