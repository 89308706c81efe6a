// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Subject is what policies are evaluated for: a user object on a node.
type Subject struct {
	Kind string
	// Namespace is empty for cluster-scoped kinds.
	Namespace string
	// NodeLabels are the labels of the node that loads the object. If they are nil, the
	// subject has no particular node, and every node selector matches. labels.Set(nil)
	// stands for a node without labels.
	NodeLabels labels.Labels
	Image      Image
	// ImageError is the reason why the reference of the bytecode can't be parsed.
	ImageError error
	Programs   []Program
}

// Program is one program of an object, with the properties that policies can limit.
type Program struct {
	// Name is the name of the program's function.
	Name string
	// Type is the type, as for a member of an application. For return probes, it is
	// Kprobe or Uprobe.
	Type v1alpha1.EBPFProgType
	// Hooks are the hooks that the object names. Interfaces that a node discovers, or
	// its primary interface, aren't included.
	Hooks []Hook
	// Priority is nil for types without a priority.
	Priority *int32
}

// SubjectOf returns the subject for a user object of the given kind, without a node.
func SubjectOf(kind string, o v1alpha1.UserObject) Subject {
	s := Subject{Kind: kind, Namespace: o.GetNamespace()}
	s.Image, s.ImageError = ParseImage(o.GetAppCommon().ByteCode)
	s.Programs = programsOf(o)
	return s
}

// programsOf returns the programs of an object of any kind. It leaves out the members of
// an application that have no configuration, because nothing is loaded for them.
func programsOf(o v1alpha1.UserObject) []Program {
	switch o := o.(type) {
	case *v1alpha1.XdpProgram:
		return []Program{network(v1alpha1.ProgTypeXDP, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.XdpNsProgram:
		return []Program{network(v1alpha1.ProgTypeXDP, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.TcProgram:
		return []Program{network(v1alpha1.ProgTypeTC, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.TcNsProgram:
		return []Program{network(v1alpha1.ProgTypeTC, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.TcxProgram:
		return []Program{network(v1alpha1.ProgTypeTCX, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.TcxNsProgram:
		return []Program{network(v1alpha1.ProgTypeTCX, o.Spec.BpfFunctionName, o.Spec.InterfaceSelector, o.Spec.Priority)}
	case *v1alpha1.FentryProgram:
		return []Program{kernel(v1alpha1.ProgTypeFentry, o.Spec.BpfFunctionName, o.Spec.FunctionName, 0)}
	case *v1alpha1.FexitProgram:
		return []Program{kernel(v1alpha1.ProgTypeFexit, o.Spec.BpfFunctionName, o.Spec.FunctionName, 0)}
	case *v1alpha1.KprobeProgram:
		return []Program{kernel(v1alpha1.ProgTypeKprobe, o.Spec.BpfFunctionName, o.Spec.FunctionName, o.Spec.Offset)}
	case *v1alpha1.UprobeProgram:
		return []Program{user(o.Spec.BpfFunctionName, o.Spec.Target)}
	case *v1alpha1.UprobeNsProgram:
		return []Program{user(o.Spec.BpfFunctionName, o.Spec.Target)}
	case *v1alpha1.TracepointProgram:
		return []Program{static(o.Spec.BpfFunctionName, o.Spec.Names)}
	case *v1alpha1.BpfApplication:
		return members(o.Spec.Programs, memberOf)
	case *v1alpha1.BpfNsApplication:
		return members(o.Spec.Programs, nsMemberOf)
	}
	return nil
}

func members[M any](of []M, programOf func(*M) (Program, bool)) []Program {
	var out []Program
	for i := range of {
		if p, ok := programOf(&of[i]); ok {
			out = append(out, p)
		}
	}
	return out
}

func memberOf(m *v1alpha1.BpfApplicationProgram) (Program, bool) {
	switch {
	case m.Type == v1alpha1.ProgTypeXDP && m.XDP != nil:
		return network(m.Type, m.XDP.BpfFunctionName, m.XDP.InterfaceSelector, m.XDP.Priority), true
	case m.Type == v1alpha1.ProgTypeTC && m.TC != nil:
		return network(m.Type, m.TC.BpfFunctionName, m.TC.InterfaceSelector, m.TC.Priority), true
	case m.Type == v1alpha1.ProgTypeTCX && m.TCX != nil:
		return network(m.Type, m.TCX.BpfFunctionName, m.TCX.InterfaceSelector, m.TCX.Priority), true
	case m.Type == v1alpha1.ProgTypeFentry && m.Fentry != nil:
		return kernel(m.Type, m.Fentry.BpfFunctionName, m.Fentry.FunctionName, 0), true
	case m.Type == v1alpha1.ProgTypeFexit && m.Fexit != nil:
		return kernel(m.Type, m.Fexit.BpfFunctionName, m.Fexit.FunctionName, 0), true
	case m.Type == v1alpha1.ProgTypeKprobe && m.Kprobe != nil:
		return kernel(m.Type, m.Kprobe.BpfFunctionName, m.Kprobe.FunctionName, m.Kprobe.Offset), true
	case m.Type == v1alpha1.ProgTypeKretprobe && m.Kretprobe != nil:
		return kernel(v1alpha1.ProgTypeKprobe, m.Kretprobe.BpfFunctionName, m.Kretprobe.FunctionName, m.Kretprobe.Offset), true
	case m.Type == v1alpha1.ProgTypeUprobe && m.Uprobe != nil:
		return user(m.Uprobe.BpfFunctionName, m.Uprobe.Target), true
	case m.Type == v1alpha1.ProgTypeUretprobe && m.Uretprobe != nil:
		return user(m.Uretprobe.BpfFunctionName, m.Uretprobe.Target), true
	case m.Type == v1alpha1.ProgTypeTracepoint && m.Tracepoint != nil:
		return static(m.Tracepoint.BpfFunctionName, m.Tracepoint.Names), true
	}
	return Program{}, false
}

func nsMemberOf(m *v1alpha1.BpfNsApplicationProgram) (Program, bool) {
	switch {
	case m.Type == v1alpha1.ProgTypeXDP && m.XDP != nil:
		return network(m.Type, m.XDP.BpfFunctionName, m.XDP.InterfaceSelector, m.XDP.Priority), true
	case m.Type == v1alpha1.ProgTypeTC && m.TC != nil:
		return network(m.Type, m.TC.BpfFunctionName, m.TC.InterfaceSelector, m.TC.Priority), true
	case m.Type == v1alpha1.ProgTypeTCX && m.TCX != nil:
		return network(m.Type, m.TCX.BpfFunctionName, m.TCX.InterfaceSelector, m.TCX.Priority), true
	case m.Type == v1alpha1.ProgTypeUprobe && m.Uprobe != nil:
		return user(m.Uprobe.BpfFunctionName, m.Uprobe.Target), true
	case m.Type == v1alpha1.ProgTypeUretprobe && m.Uretprobe != nil:
		return user(m.Uretprobe.BpfFunctionName, m.Uretprobe.Target), true
	}
	return Program{}, false
}

func network(t v1alpha1.EBPFProgType, name string, s v1alpha1.InterfaceSelector, priority int32) Program {
	p := Program{Name: name, Type: t, Priority: &priority}
	// If an object has both, the primary interface takes precedence, as in the agent.
	if s.Interfaces != nil && s.PrimaryNodeInterface == nil {
		for _, i := range *s.Interfaces {
			p.Hooks = append(p.Hooks, Hook{Type: Interface, Name: i})
		}
	}
	return p
}

func kernel(t v1alpha1.EBPFProgType, name, function string, offset uint64) Program {
	return Program{Name: name, Type: t, Hooks: []Hook{{Type: Function, Name: function, Offset: offset != 0}}}
}

func user(name, target string) Program {
	return Program{Name: name, Type: v1alpha1.ProgTypeUprobe, Hooks: []Hook{{Type: Target, Name: target}}}
}

func static(name string, tracepoints []string) Program {
	p := Program{Name: name, Type: v1alpha1.ProgTypeTracepoint}
	for _, t := range tracepoints {
		p.Hooks = append(p.Hooks, Hook{Type: Tracepoint, Name: t})
	}
	return p
}
