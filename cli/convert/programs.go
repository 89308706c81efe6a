// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// programs converts the programs of a BpfApplication. A program in upstream's API has one
// function and several links. Here, each link becomes a member. Members with the same function
// share one loaded program.
func (c *conversion) programs(in []v1alpha1.ClusterBpfApplicationProgram) []v1alpha1.BpfApplicationProgram {
	if len(in) == 0 {
		c.fail("spec.programs", "at least one is required")
	}
	var out []v1alpha1.BpfApplicationProgram
	for i := range in {
		p := &in[i]
		path := fmt.Sprintf("spec.programs[%d]", i)
		field, known := fieldOf[p.Type]
		switch {
		case !known:
			c.fail(path+".type", fmt.Sprintf("%q isn't a type of program that a BpfApplication, which is namespaced, can have", p.Type))
			continue
		case !configured(p)[field]:
			c.fail(path+"."+field, "required, as the type is "+string(p.Type))
			continue
		}
		c.links(path+"."+field+".links", p)
		for _, other := range []string{"xdp", "tc", "tcx", "fentry", "fexit", "kprobe", "kretprobe", "uprobe", "uretprobe", "tracepoint"} {
			if other != field && configured(p)[other] {
				c.lost(path+"."+other, "the type is "+string(p.Type))
			}
		}
		for _, m := range p.Members() {
			complete(&m)
			out = append(out, m)
		}
	}
	return out
}

// fieldOf has the fields of the types that a BpfApplication can have.
var fieldOf = map[v1alpha1.ApplicationProgramType]string{
	v1alpha1.ApplicationXDP: "xdp", v1alpha1.ApplicationTC: "tc", v1alpha1.ApplicationTCX: "tcx",
	v1alpha1.ApplicationUProbe: "uprobe", v1alpha1.ApplicationURetProbe: "uretprobe",
}

func configured(p *v1alpha1.ClusterBpfApplicationProgram) map[string]bool {
	return map[string]bool{
		"xdp": p.XDP != nil, "tc": p.TC != nil, "tcx": p.TCX != nil, "fentry": p.FEntry != nil, "fexit": p.FExit != nil,
		"kprobe": p.KProbe != nil, "kretprobe": p.KRetProbe != nil, "uprobe": p.UProbe != nil, "uretprobe": p.URetProbe != nil,
		"tracepoint": p.TracePoint != nil,
	}
}

// links says what the conversion of a program's links changes.
func (c *conversion) links(path string, p *v1alpha1.ClusterBpfApplicationProgram) {
	switch {
	case p.XDP != nil:
		for i, link := range p.XDP.Links {
			c.network(fmt.Sprintf("%s[%d]", path, i), link.NetworkLink)
			known(c, fmt.Sprintf("%s[%d].proceedOn", path, i), link.ProceedOn, "Aborted Drop Pass TX ReDirect DispatcherReturn")
		}
	case p.TC != nil:
		c.placeholder(path, len(p.TC.Links), "direction: ingress")
		for i, link := range p.TC.Links {
			at := fmt.Sprintf("%s[%d]", path, i)
			c.network(at, link.NetworkLink)
			known(c, at+".proceedOn", link.ProceedOn, "UnSpec OK ReClassify Shot Pipe Stolen Queued Repeat ReDirect Trap DispatcherReturn")
			c.direction(at+".direction", link.Direction)
		}
	case p.TCX != nil:
		c.placeholder(path, len(p.TCX.Links), "direction: ingress")
		for i, link := range p.TCX.Links {
			c.network(fmt.Sprintf("%s[%d]", path, i), link.NetworkLink)
			c.direction(fmt.Sprintf("%s[%d].direction", path, i), link.Direction)
		}
	case p.UProbe != nil:
		c.uprobe(path, p.UProbe.Links)
	case p.URetProbe != nil:
		c.uprobe(path, p.URetProbe.Links)
	}
}

func (c *conversion) network(path string, link v1alpha1.NetworkLink) {
	c.interfaces(path+".interfaceSelector", link.InterfaceSelector)
	if link.NetworkNamespaces == nil {
		c.fail(path+".networkNamespaces", "required in a BpfApplication, which is namespaced")
		return
	}
	if d := link.InterfaceSelector.InterfacesDiscoveryConfig; d != nil && d.InterfaceAutoDiscovery != nil && *d.InterfaceAutoDiscovery {
		c.note(path+".interfaceSelector.interfacesDiscoveryConfig", "upstream's v0.6 doesn't implement discovery in a BpfApplication, and never attaches the program; the result is attached in the selected pods")
	}
	c.ownNamespace(path+".networkNamespaces", link.NetworkNamespaces.Namespace)
}

func (c *conversion) interfaces(path string, in v1alpha1.LinkInterfaces) {
	const nothing = "selects no interface, which is an error in upstream's v0.6; the result is loaded, and attached to no interface"
	chosen := 0
	if d := in.InterfacesDiscoveryConfig; d != nil {
		chosen++
		if d.InterfaceAutoDiscovery == nil || !*d.InterfaceAutoDiscovery {
			c.note(path+".interfacesDiscoveryConfig.interfaceAutoDiscovery", "not true: "+nothing)
		}
	}
	if in.Interfaces != nil {
		chosen++
		if len(*in.Interfaces) == 0 {
			c.note(path+".interfaces", "empty: "+nothing)
		}
	}
	if in.PrimaryNodeInterface != nil {
		chosen++
		if !*in.PrimaryNodeInterface {
			c.note(path+".primaryNodeInterface", "converted to true: upstream's v0.6 treats false as true")
		}
	}
	if chosen != 1 {
		c.fail(path, "exactly one of interfacesDiscoveryConfig, interfaces and primaryNodeInterface is required")
	}
}

func (c *conversion) uprobe(path string, links []v1alpha1.UprobeLink) {
	c.placeholder(path, len(links), "target: libc")
	for i, link := range links {
		at := fmt.Sprintf("%s[%d].containers", path, i)
		if link.Containers == nil {
			c.fail(at, "required in a BpfApplication, which is namespaced")
		} else {
			c.ownNamespace(at, link.Containers.Namespace)
		}
	}
}

func (c *conversion) ownNamespace(path, namespace string) {
	if namespace != "" {
		c.lost(path+".namespace", "a BpfApplication, which is namespaced, selects pods of its own namespace")
	}
}

func (c *conversion) direction(path string, in v1alpha1.LinkDirection) {
	if lower := strings.ToLower(string(in)); lower != "ingress" && lower != "egress" {
		c.fail(path, fmt.Sprintf("%q is neither Ingress nor Egress", in))
	}
}

// known names the results of programs that upstream's v0.6 doesn't have.
func known[T ~string](c *conversion, path string, words []T, all string) {
	for i, word := range words {
		if !strings.Contains(" "+all+" ", " "+string(word)+" ") {
			c.lost(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q isn't a result of such a program", word))
		}
	}
}

// placeholder says which placeholder a program without links has.
func (c *conversion) placeholder(path string, links int, what string) {
	if links == 0 {
		c.note(path, "there are none, so the program is only loaded (attach: false); "+what+" is a placeholder for the attach point")
	}
}

// complete sets the fields that the API requires of a program that is only loaded. They have no
// effect until the user removes attach.
func complete(m *v1alpha1.BpfApplicationProgram) {
	if attach := m.Info().Common().Attach; attach == nil || *attach {
		return
	}
	none, pods := v1alpha1.InterfaceSelector{Interfaces: &[]string{}}, &v1alpha1.ContainerSelector{}
	switch {
	case m.XDP != nil:
		m.XDP.InterfaceSelector, m.XDP.Containers = none, pods
	case m.TC != nil:
		m.TC.InterfaceSelector, m.TC.Containers, m.TC.Direction = none, pods, "ingress"
	case m.TCX != nil:
		m.TCX.InterfaceSelector, m.TCX.Containers, m.TCX.Direction = none, pods, "ingress"
	case m.Uprobe != nil:
		m.Uprobe.Target, m.Uprobe.Containers = "libc", pods
	case m.Uretprobe != nil:
		m.Uretprobe.Target, m.Uretprobe.Containers = "libc", pods
	}
}

// namespaced converts a member for a namespaced application. Its fields have the same names there; only a namespace, which
// selects pods in cluster-scoped applications, has no field.
func namespaced(in v1alpha1.BpfApplicationProgram) (out v1alpha1.BpfNsApplicationProgram, err error) {
	text, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		err = fmt.Errorf("convert %s of a namespaced application: %w", in.Type, err)
	}
	return out, err
}
