// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
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
	var out []Program
	for _, p := range userobject.Programs(o) {
		switch i := p.Info().(type) {
		case *v1alpha1.XdpProgramInfo:
			out = append(out, network(p.Type, i.BpfFunctionName, i.InterfaceSelector, i.Priority))
		case *v1alpha1.TcProgramInfo:
			out = append(out, network(p.Type, i.BpfFunctionName, i.InterfaceSelector, i.Priority))
		case *v1alpha1.TcxProgramInfo:
			out = append(out, network(p.Type, i.BpfFunctionName, i.InterfaceSelector, i.Priority))
		case *v1alpha1.FentryProgramInfo:
			out = append(out, kernel(p.Type, i.BpfFunctionName, i.FunctionName, 0))
		case *v1alpha1.FexitProgramInfo:
			out = append(out, kernel(p.Type, i.BpfFunctionName, i.FunctionName, 0))
		case *v1alpha1.KprobeProgramInfo:
			out = append(out, kernel(v1alpha1.ProgTypeKprobe, i.BpfFunctionName, i.FunctionName, i.Offset))
		case *v1alpha1.UprobeProgramInfo:
			out = append(out, Program{Name: i.BpfFunctionName, Type: v1alpha1.ProgTypeUprobe, Hooks: hooks(Target, i.Target)})
		case *v1alpha1.TracepointProgramInfo:
			out = append(out, Program{Name: i.BpfFunctionName, Type: p.Type, Hooks: hooks(Tracepoint, i.Names...)})
		}
	}
	return out
}

func network(t v1alpha1.EBPFProgType, name string, s v1alpha1.InterfaceSelector, priority int32) Program {
	p := Program{Name: name, Type: t, Priority: &priority}
	// If an object has both, the primary interface takes precedence, as in the agent.
	if s.Interfaces != nil && s.PrimaryNodeInterface == nil {
		p.Hooks = hooks(Interface, *s.Interfaces...)
	}
	return p
}

func kernel(t v1alpha1.EBPFProgType, name, function string, offset uint64) Program {
	return Program{Name: name, Type: t, Hooks: []Hook{{Type: Function, Name: function, Offset: offset != 0}}}
}

func hooks(t HookType, names ...string) []Hook {
	var out []Hook
	for _, name := range names {
		out = append(out, Hook{Type: t, Name: name})
	}
	return out
}
