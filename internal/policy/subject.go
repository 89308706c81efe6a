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
		i := p.Info()
		if i == nil {
			continue
		}
		program := Program{Name: i.Common().BpfFunctionName, Type: i.ProgramType(), Hooks: hooks(i.NamedHooks())}
		if chain := i.Chain(); chain != nil {
			program.Priority = &chain.Priority
		}
		out = append(out, program)
	}
	return out
}

func hooks(named v1alpha1.NamedHooks) []Hook {
	var out []Hook
	for _, name := range named.Interfaces {
		out = append(out, Hook{Type: Interface, Name: name})
	}
	for _, name := range named.Tracepoints {
		out = append(out, Hook{Type: Tracepoint, Name: name})
	}
	if named.Function != nil {
		out = append(out, Hook{Type: Function, Name: named.Function.Name, Offset: named.Function.Offset != 0})
	}
	if named.Target != nil {
		out = append(out, Hook{Type: Target, Name: *named.Target})
	}
	return out
}
