// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"slices"
	"strings"
)

// defaultPriority is the priority of a link without one.
const defaultPriority = 1000

// Members returns a program of a ClusterBpfApplication in the form of members of a
// BpfApplication: one for each link, or one that isn't attached if there are none. Members
// with the same function share one loaded program. Fields that only attaching needs are
// empty in a member that isn't attached.
func (p *ClusterBpfApplicationProgram) Members() []BpfApplicationProgram {
	common := BpfProgramCommon{BpfFunctionName: p.Name}
	var members []BpfApplicationProgram
	switch p.Type {
	case ApplicationXDP:
		members = p.XDP.members(common)
	case ApplicationTC:
		members = p.TC.members(common)
	case ApplicationTCX:
		members = p.TCX.members(common)
	case ApplicationFEntry:
		members = p.FEntry.members(ProgTypeFentry, common)
	case ApplicationFExit:
		members = p.FExit.members(ProgTypeFexit, common)
	case ApplicationKProbe:
		members = p.KProbe.members(common)
	case ApplicationKRetProbe:
		members = p.KRetProbe.members(common)
	case ApplicationUProbe:
		members = p.UProbe.members(ProgTypeUprobe, common)
	case ApplicationURetProbe:
		members = p.URetProbe.members(ProgTypeUretprobe, common)
	case ApplicationTracePoint:
		members = p.TracePoint.members(common)
	}
	if members == nil { // the API server doesn't admit it
		members = []BpfApplicationProgram{{Type: EBPFProgType(p.Type)}}
	}
	return members
}

// Origin returns of which program and link of the application the i-th of Members is. link is -1 if the member has all links
// of its program, or if there are none.
func (o *ClusterBpfApplication) Origin(i int) (program, link int) {
	for program = range o.Spec.Programs {
		p := &o.Spec.Programs[program]
		of := len(p.Members())
		if i >= of {
			i -= of
			continue
		}
		for link, members := range p.membersOfLinks() {
			if i -= members; i < 0 {
				return program, link
			}
		}
		break
	}
	return program, -1
}

// membersOfLinks returns how many members there are for each link. It is empty if there is one for all links.
func (p *ClusterBpfApplicationProgram) membersOfLinks() []int {
	var members []int
	switch {
	case p.XDP != nil:
		for _, l := range p.XDP.Links {
			members = append(members, len(l.places()))
		}
	case p.TC != nil:
		for _, l := range p.TC.Links {
			members = append(members, len(l.places()))
		}
	case p.TCX != nil:
		for _, l := range p.TCX.Links {
			members = append(members, len(l.places()))
		}
	case p.KProbe != nil:
		members = slices.Repeat([]int{1}, len(p.KProbe.Links))
	case p.KRetProbe != nil:
		members = slices.Repeat([]int{1}, len(p.KRetProbe.Links))
	case p.UProbe != nil:
		members = slices.Repeat([]int{1}, len(p.UProbe.Links))
	case p.URetProbe != nil:
		members = slices.Repeat([]int{1}, len(p.URetProbe.Links))
	}
	return members
}

// unattached returns the fields of a program without links.
func (c BpfProgramCommon) unattached() BpfProgramCommon {
	c.Attach = new(false)
	return c
}

// linkPlace is where a link attaches a program to the network.
type linkPlace struct {
	interfaces InterfaceSelector
	containers *ContainerSelector
}

// places returns where a link attaches its program. This is one place, except for a discovery
// without networkNamespaces, which finds the interfaces of the host and of all pods.
func (l *NetworkLink) places() []linkPlace {
	place := linkPlace{interfaces: l.InterfaceSelector.selector()}
	if l.NetworkNamespaces != nil {
		in := l.NetworkNamespaces
		place.containers = &ContainerSelector{Namespace: in.Namespace, Pods: in.Pods, Attachment: in.Attachment, FailurePolicy: in.FailurePolicy}
		return []linkPlace{place}
	}
	d := place.interfaces.InterfacesDiscoveryConfig
	if d == nil || d.InterfaceAutoDiscovery == nil || !*d.InterfaceAutoDiscovery {
		return []linkPlace{place}
	}
	return []linkPlace{place, {interfaces: place.interfaces, containers: &ContainerSelector{}}}
}

func (l *NetworkLink) priority() int32 {
	if l.Priority == nil {
		return defaultPriority
	}
	return *l.Priority
}

func (s LinkInterfaces) selector() InterfaceSelector {
	selector := InterfaceSelector{Interfaces: s.Interfaces}
	if s.PrimaryNodeInterface != nil {
		selector.PrimaryNodeInterface = new(true) // only its presence counts
	}
	if d := s.InterfacesDiscoveryConfig; d != nil {
		selector.InterfacesDiscoveryConfig = &InterfaceDiscovery{
			InterfaceAutoDiscovery: d.InterfaceAutoDiscovery, ExcludeInterfaces: d.ExcludeInterfaces, AllowedInterfaces: d.AllowedInterfaces,
		}
	}
	return selector
}

func (l *XdpLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		return []BpfApplicationProgram{{Type: ProgTypeXDP, XDP: &XdpProgramInfo{BpfProgramCommon: c.unattached(), Priority: defaultPriority}}}
	}
	var members []BpfApplicationProgram
	for i := range l.Links {
		link := &l.Links[i]
		for _, at := range link.places() {
			members = append(members, BpfApplicationProgram{Type: ProgTypeXDP, XDP: &XdpProgramInfo{
				BpfProgramCommon: c, InterfaceSelector: at.interfaces, Containers: at.containers, Priority: link.priority(),
				ProceedOn: results(link.ProceedOn, xdpResults, "pass", "dispatcher_return"),
			}})
		}
	}
	return members
}

func (l *TcLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		return []BpfApplicationProgram{{Type: ProgTypeTC, TC: &TcProgramInfo{BpfProgramCommon: c.unattached(), Priority: defaultPriority}}}
	}
	var members []BpfApplicationProgram
	for i := range l.Links {
		link := &l.Links[i]
		for _, at := range link.places() {
			members = append(members, BpfApplicationProgram{Type: ProgTypeTC, TC: &TcProgramInfo{
				BpfProgramCommon: c, InterfaceSelector: at.interfaces, Containers: at.containers, Priority: link.priority(),
				Direction: link.Direction.lower(), ProceedOn: results(link.ProceedOn, tcResults, "pipe", "dispatcher_return"),
			}})
		}
	}
	return members
}

func (l *TcxLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		return []BpfApplicationProgram{{Type: ProgTypeTCX, TCX: &TcxProgramInfo{BpfProgramCommon: c.unattached(), Priority: defaultPriority}}}
	}
	var members []BpfApplicationProgram
	for i := range l.Links {
		link := &l.Links[i]
		for _, at := range link.places() {
			members = append(members, BpfApplicationProgram{Type: ProgTypeTCX, TCX: &TcxProgramInfo{
				BpfProgramCommon: c, InterfaceSelector: at.interfaces, Containers: at.containers, Priority: link.priority(),
				Direction: link.Direction.lower(),
			}})
		}
	}
	return members
}

// members returns the only member of a fentry or fexit program.
func (l *FunctionLinks) members(t EBPFProgType, c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		c = c.unattached()
	}
	if t == ProgTypeFexit {
		return []BpfApplicationProgram{{Type: t, Fexit: &FexitProgramInfo{BpfProgramCommon: c, FunctionName: l.Function}}}
	}
	return []BpfApplicationProgram{{Type: t, Fentry: &FentryProgramInfo{BpfProgramCommon: c, FunctionName: l.Function}}}
}

func (l *KprobeLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		return []BpfApplicationProgram{{Type: ProgTypeKprobe, Kprobe: &KprobeProgramInfo{BpfProgramCommon: c.unattached()}}}
	}
	var members []BpfApplicationProgram
	for _, link := range l.Links {
		members = append(members, BpfApplicationProgram{Type: ProgTypeKprobe, Kprobe: &KprobeProgramInfo{
			BpfProgramCommon: c, FunctionName: link.Function, Offset: link.Offset,
		}})
	}
	return members
}

func (l *KretprobeLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		return []BpfApplicationProgram{{Type: ProgTypeKretprobe, Kretprobe: &KprobeProgramInfo{BpfProgramCommon: c.unattached()}}}
	}
	var members []BpfApplicationProgram
	for _, link := range l.Links {
		members = append(members, BpfApplicationProgram{Type: ProgTypeKretprobe, Kretprobe: &KprobeProgramInfo{
			BpfProgramCommon: c, FunctionName: link.Function,
		}})
	}
	return members
}

// members returns the members of a uprobe or uretprobe program.
func (l *UprobeLinks) members(t EBPFProgType, c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	infos := make([]*UprobeProgramInfo, 0, max(1, len(l.Links)))
	for _, link := range l.Links {
		info := &UprobeProgramInfo{BpfProgramCommon: c, FunctionName: link.Function, Offset: link.Offset, Target: link.Target}
		if link.Pid != nil {
			info.Pid = *link.Pid
		}
		if in := link.Containers; in != nil {
			info.Containers = &ContainerSelector{
				Namespace: in.Namespace, Pods: in.Pods, ContainerNames: in.ContainerNames, Attachment: in.Attachment, FailurePolicy: in.FailurePolicy,
			}
		}
		infos = append(infos, info)
	}
	if len(infos) == 0 {
		infos = append(infos, &UprobeProgramInfo{BpfProgramCommon: c.unattached()})
	}
	members := make([]BpfApplicationProgram, len(infos))
	for i, info := range infos {
		members[i] = BpfApplicationProgram{Type: t, Uprobe: info}
		if t == ProgTypeUretprobe {
			members[i] = BpfApplicationProgram{Type: t, Uretprobe: info}
		}
	}
	return members
}

// members returns one member with the names of all links.
func (l *TracepointLinks) members(c BpfProgramCommon) []BpfApplicationProgram {
	if l == nil {
		return nil
	}
	if len(l.Links) == 0 {
		c = c.unattached()
	}
	info := &TracepointProgramInfo{BpfProgramCommon: c, Names: make([]string, 0, len(l.Links))}
	for _, link := range l.Links {
		info.Names = append(info.Names, link.Name)
	}
	return []BpfApplicationProgram{{Type: ProgTypeTracepoint, Tracepoint: info}}
}

func (d LinkDirection) lower() string { return strings.ToLower(string(d)) }

var xdpResults = map[XdpLinkResult]XdpProceedOnValue{
	"Aborted": "aborted", "Drop": "drop", "Pass": "pass", "TX": "tx", "ReDirect": "redirect", "DispatcherReturn": "dispatcher_return",
}

var tcResults = map[TcLinkResult]TcProceedOnValue{
	"UnSpec": "unspec", "OK": "ok", "ReClassify": "reclassify", "Shot": "shot", "Pipe": "pipe", "Stolen": "stolen", "Queued": "queued",
	"Repeat": "repeat", "ReDirect": "redirect", "Trap": "trap", "DispatcherReturn": "dispatcher_return",
}

// results converts the results of programs, without duplicates. If the field is absent, these are
// the default ones.
func results[F, T ~string](of []F, table map[F]T, defaults ...T) []T {
	if of == nil {
		return defaults
	}
	out := make([]T, 0, len(of))
	for _, word := range of {
		if result, known := table[word]; known && !slices.Contains(out, result) {
			out = append(out, result)
		}
	}
	return out
}

// XdpLinkResultsOf returns the results of an XDP program as the links of applications have them.
func XdpLinkResultsOf(words []string) []XdpLinkResult { return linkResults(xdpResults, words) }

// TcLinkResultsOf returns the results of a TC program as the links of applications have them.
func TcLinkResultsOf(words []string) []TcLinkResult { return linkResults(tcResults, words) }

func linkResults[F, T ~string](table map[F]T, words []string) []F {
	out := make([]F, 0, len(words))
	for _, word := range words {
		for result, own := range table {
			if string(own) == word {
				out = append(out, result)
			}
		}
	}
	return out
}

// LinkDirectionOf returns a direction as the links of applications have it.
func LinkDirectionOf(direction string) LinkDirection {
	if direction == "egress" {
		return "Egress"
	}
	return "Ingress"
}
