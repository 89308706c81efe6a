// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// defaultPriority is the default in upstream's v0.6.
const defaultPriority = 1000

// programs converts members. A member in upstream's API has one function and several
// links. Here, each link becomes a member. Members with the same function share one
// loaded program.
func (c *conversion) programs(in []upstreamProgram) []v1alpha1.BpfApplicationProgram {
	if len(in) == 0 {
		c.fail("spec.programs", "at least one is required")
	}
	var out []v1alpha1.BpfApplicationProgram
	for i := range in {
		p := &in[i]
		path := fmt.Sprintf("spec.programs[%d]", i)
		types := p.types()
		kind, known := types[p.Type]
		switch {
		case !known:
			c.fail(path+".type", fmt.Sprintf("%q isn't a type of program", p.Type))
		case c.namespaced && !slices.Contains([]string{"XDP", "TC", "TCX", "UProbe", "URetProbe"}, p.Type):
			c.fail(path+".type", p.Type+" isn't a type of program that a BpfApplication, which is namespaced, can have")
		case !kind.set:
			c.fail(path+"."+kind.field, "required, as the type is "+p.Type)
		default:
			members := kind.convert(c, path+"."+kind.field+".links")
			for n := range members {
				members[n].Type = kind.is
			}
			out = append(out, members...)
		}
		for _, name := range slices.Sorted(maps.Keys(types)) {
			if other := types[name]; name != p.Type && other.set {
				c.lost(path+"."+other.field, "the type is "+p.Type)
			}
		}
	}
	return out
}

// memberType describes one type of member: its field in upstream's API, whether the
// field is set, the type in this API, and the conversion of its links.
type memberType struct {
	field   string
	set     bool
	is      v1alpha1.EBPFProgType
	convert func(c *conversion, path string) []v1alpha1.BpfApplicationProgram
}

type members = []v1alpha1.BpfApplicationProgram

func (p *upstreamProgram) types() map[string]memberType {
	return map[string]memberType{
		"XDP": {"xdp", p.XDP != nil, v1alpha1.ProgTypeXDP, func(c *conversion, path string) members { return c.xdp(path, p.Name, p.XDP.Links) }},
		"TC":  {"tc", p.TC != nil, v1alpha1.ProgTypeTC, func(c *conversion, path string) members { return c.tc(path, p.Name, p.TC.Links) }},
		"TCX": {"tcx", p.TCX != nil, v1alpha1.ProgTypeTCX, func(c *conversion, path string) members { return c.tcx(path, p.Name, p.TCX.Links) }},
		"FEntry": {"fentry", p.FEntry != nil, v1alpha1.ProgTypeFentry, func(c *conversion, path string) members {
			return members{{Fentry: &v1alpha1.FentryProgramInfo{BpfProgramCommon: c.trampoline(path, p.Name, p.FEntry), FunctionName: p.FEntry.Function}}}
		}},
		"FExit": {"fexit", p.FExit != nil, v1alpha1.ProgTypeFexit, func(c *conversion, path string) members {
			return members{{Fexit: &v1alpha1.FexitProgramInfo{BpfProgramCommon: c.trampoline(path, p.Name, p.FExit), FunctionName: p.FExit.Function}}}
		}},
		"KProbe":     {"kprobe", p.KProbe != nil, v1alpha1.ProgTypeKprobe, func(c *conversion, path string) members { return c.kprobe(path, p.Name, p.KProbe.Links) }},
		"KRetProbe":  {"kretprobe", p.KRetProbe != nil, v1alpha1.ProgTypeKretprobe, func(c *conversion, path string) members { return c.kretprobe(path, p.Name, p.KRetProbe.Links) }},
		"UProbe":     {"uprobe", p.UProbe != nil, v1alpha1.ProgTypeUprobe, func(c *conversion, path string) members { return c.uprobe(path, p.Name, p.UProbe.Links, false) }},
		"URetProbe":  {"uretprobe", p.URetProbe != nil, v1alpha1.ProgTypeUretprobe, func(c *conversion, path string) members { return c.uprobe(path, p.Name, p.URetProbe.Links, true) }},
		"TracePoint": {"tracepoint", p.TracePoint != nil, v1alpha1.ProgTypeTracepoint, func(_ *conversion, _ string) members { return tracepoint(p.Name, p.TracePoint.Links) }},
	}
}

func attached(function string) v1alpha1.BpfProgramCommon {
	return v1alpha1.BpfProgramCommon{BpfFunctionName: function}
}

// loaded returns a member without links. The API requires an attach point anyway. It has
// no effect until the user removes attach.
func (c *conversion) loaded(path, function, standIn string) v1alpha1.BpfProgramCommon {
	if standIn != "" {
		c.note(path, "there are none, so the program is only loaded (attach: false); "+standIn+" is a placeholder for the attach point")
	}
	return v1alpha1.BpfProgramCommon{BpfFunctionName: function, Attach: new(false)}
}

func (c *conversion) trampoline(path, function string, in *upstreamTrampoline) v1alpha1.BpfProgramCommon {
	if len(in.Links) == 0 {
		return c.loaded(path, function, "")
	}
	for i, link := range in.Links {
		if link.Mode != "Attach" {
			c.lost(fmt.Sprintf("%s[%d].mode", path, i), fmt.Sprintf("%q isn't a mode of v0.6: the program is attached", link.Mode))
		}
	}
	return attached(function)
}

func (c *conversion) kprobe(path, function string, links []upstreamKprobe) members {
	if len(links) == 0 {
		return members{{Kprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: c.loaded(path, function, "func_name: "+function), FunctionName: function}}}
	}
	var out members
	for _, link := range links {
		out = append(out, v1alpha1.BpfApplicationProgram{Kprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: attached(function), FunctionName: link.Function, Offset: link.Offset}})
	}
	return out
}

func (c *conversion) kretprobe(path, function string, links []upstreamKret) members {
	kprobes := make([]upstreamKprobe, 0, len(links))
	for _, link := range links {
		kprobes = append(kprobes, upstreamKprobe{Function: link.Function})
	}
	out := c.kprobe(path, function, kprobes)
	for i := range out {
		out[i].Kprobe, out[i].Kretprobe = nil, out[i].Kprobe
	}
	return out
}

func (c *conversion) uprobe(path, function string, links []upstreamUprobe, isReturn bool) members {
	var infos []*v1alpha1.UprobeProgramInfo
	for i, link := range links {
		info := &v1alpha1.UprobeProgramInfo{BpfProgramCommon: attached(function), FunctionName: link.Function, Offset: link.Offset, Target: link.Target}
		if link.Pid != nil {
			info.Pid = *link.Pid
		}
		at := fmt.Sprintf("%s[%d].containers", path, i)
		if in := link.Containers; in != nil {
			info.Containers = c.pods(at, in.upstreamPods)
			info.Containers.ContainerNames = in.ContainerNames
		} else if c.namespaced {
			c.fail(at, "required in a BpfApplication, which is namespaced")
		}
		infos = append(infos, info)
	}
	if len(links) == 0 {
		infos = append(infos, &v1alpha1.UprobeProgramInfo{BpfProgramCommon: c.loaded(path, function, "target: libc"), Target: "libc"})
		if c.namespaced {
			infos[0].Containers = &v1alpha1.ContainerSelector{}
		}
	}
	var out members
	for _, info := range infos {
		if isReturn {
			out = append(out, v1alpha1.BpfApplicationProgram{Uretprobe: info})
		} else {
			out = append(out, v1alpha1.BpfApplicationProgram{Uprobe: info})
		}
	}
	return out
}

func tracepoint(function string, links []upstreamTracept) members {
	info := &v1alpha1.TracepointProgramInfo{BpfProgramCommon: attached(function), Names: []string{}}
	for _, link := range links {
		info.Names = append(info.Names, link.Name)
	}
	if len(links) == 0 {
		info.Attach = new(false)
	}
	return members{{Tracepoint: info}}
}

func (c *conversion) pods(path string, in upstreamPods) *v1alpha1.ContainerSelector {
	if c.namespaced && in.Namespace != "" {
		c.lost(path+".namespace", "a BpfApplication, which is namespaced, selects pods of its own namespace")
	}
	return &v1alpha1.ContainerSelector{Namespace: in.Namespace, Pods: in.Pods}
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

// results converts the results of programs, without duplicates. Upstream spells them in
// capitals, and without separators.
func results[T ~string](c *conversion, path string, words []string, of map[string]T) []T {
	if words == nil {
		return nil // the default, which is the same in both
	}
	out := []T{}
	for i, word := range words {
		result, known := of[word]
		if !known {
			c.lost(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q isn't a result of such a program", word))
		} else if !slices.Contains(out, result) {
			out = append(out, result)
		}
	}
	return out
}

func (c *conversion) direction(path, in string) string {
	out := strings.ToLower(in)
	if out != "ingress" && out != "egress" {
		c.fail(path, fmt.Sprintf("%q is neither Ingress nor Egress", in))
	}
	return out
}
