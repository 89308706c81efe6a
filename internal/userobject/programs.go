// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package userobject gives the user objects of all kinds one form. It is the only place that
// lists which field of which kind has a program.
package userobject

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Program is one program of a user object, in the form of a member of a BpfApplication.
type Program struct {
	v1alpha1.BpfApplicationProgram
	// Namespaced means that the object is of a namespaced kind. Containers is then present,
	// and selects only containers in the object's namespace.
	Namespaced bool
}

// Info is the configuration of a program: *v1alpha1.XdpProgramInfo, or that of another type.
type Info interface {
	Common() *v1alpha1.BpfProgramCommon
}

// Programs returns the only program of an object, or all members of an application. They
// share memory with the object.
func Programs(o v1alpha1.UserObject) []Program {
	switch o := o.(type) {
	case *v1alpha1.FentryProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeFentry, Fentry: &o.Spec.FentryProgramInfo})
	case *v1alpha1.FexitProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeFexit, Fexit: &o.Spec.FexitProgramInfo})
	case *v1alpha1.KprobeProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeKprobe, Kprobe: &o.Spec.KprobeProgramInfo})
	case *v1alpha1.TcProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTC, TC: &o.Spec.TcProgramInfo})
	case *v1alpha1.TcxProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &o.Spec.TcxProgramInfo})
	case *v1alpha1.TracepointProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &o.Spec.TracepointProgramInfo})
	case *v1alpha1.UprobeProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: &o.Spec.UprobeProgramInfo})
	case *v1alpha1.XdpProgram:
		return one(v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeXDP, XDP: &o.Spec.XdpProgramInfo})
	case *v1alpha1.BpfApplication:
		programs := make([]Program, len(o.Spec.Programs))
		for i := range programs {
			programs[i].BpfApplicationProgram = o.Spec.Programs[i]
		}
		return programs
	case *v1alpha1.TcNsProgram:
		return namespaced(o, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeTC, TC: &o.Spec.TcNsProgramInfo})
	case *v1alpha1.TcxNsProgram:
		return namespaced(o, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &o.Spec.TcxNsProgramInfo})
	case *v1alpha1.UprobeNsProgram:
		return namespaced(o, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: &o.Spec.UprobeNsProgramInfo})
	case *v1alpha1.XdpNsProgram:
		return namespaced(o, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeXDP, XDP: &o.Spec.XdpNsProgramInfo})
	case *v1alpha1.BpfNsApplication:
		return namespaced(o, o.Spec.Programs...)
	}
	return nil
}

func one(p v1alpha1.BpfApplicationProgram) []Program {
	return []Program{{BpfApplicationProgram: p}}
}

func namespaced(o v1alpha1.UserObject, of ...v1alpha1.BpfNsApplicationProgram) []Program {
	programs := make([]Program, len(of))
	for i, p := range of {
		q := &programs[i]
		q.Type, q.Namespaced = p.Type, true
		if x := p.XDP; x != nil {
			q.XDP = &v1alpha1.XdpProgramInfo{
				BpfProgramCommon: x.BpfProgramCommon, InterfaceSelector: x.InterfaceSelector, Containers: within(o, x.Containers),
				Priority: x.Priority, ProceedOn: x.ProceedOn,
			}
		}
		if t := p.TC; t != nil {
			q.TC = &v1alpha1.TcProgramInfo{
				BpfProgramCommon: t.BpfProgramCommon, InterfaceSelector: t.InterfaceSelector, Containers: within(o, t.Containers),
				Priority: t.Priority, Direction: t.Direction, ProceedOn: t.ProceedOn,
			}
		}
		if t := p.TCX; t != nil {
			q.TCX = &v1alpha1.TcxProgramInfo{
				BpfProgramCommon: t.BpfProgramCommon, InterfaceSelector: t.InterfaceSelector, Containers: within(o, t.Containers),
				Priority: t.Priority, Direction: t.Direction,
			}
		}
		q.Uprobe, q.Uretprobe = uprobe(o, p.Uprobe), uprobe(o, p.Uretprobe)
	}
	return programs
}

func uprobe(o v1alpha1.UserObject, u *v1alpha1.UprobeNsProgramInfo) *v1alpha1.UprobeProgramInfo {
	if u == nil {
		return nil
	}
	return &v1alpha1.UprobeProgramInfo{
		BpfProgramCommon: u.BpfProgramCommon, FunctionName: u.FunctionName, Offset: u.Offset, Target: u.Target,
		RetProbe: u.RetProbe, Pid: u.Pid, Containers: within(o, u.Containers),
	}
}

// within limits a selector to the object's namespace. This is also the case without a selector,
// although the API server doesn't admit it, so that the program is never attached on the host.
func within(o v1alpha1.UserObject, s *v1alpha1.ContainerNsSelector) *v1alpha1.ContainerSelector {
	if s == nil {
		return &v1alpha1.ContainerSelector{Namespace: o.GetNamespace()}
	}
	return &v1alpha1.ContainerSelector{Namespace: o.GetNamespace(), Pods: s.Pods, ContainerNames: s.ContainerNames}
}

// Info returns the configuration for the program's type. It returns nil for a member of an
// application that has no type, or no configuration for its type.
func (p Program) Info() Info {
	switch p.Type {
	case v1alpha1.ProgTypeFentry:
		return present(p.Fentry)
	case v1alpha1.ProgTypeFexit:
		return present(p.Fexit)
	case v1alpha1.ProgTypeKprobe:
		return present(p.Kprobe)
	case v1alpha1.ProgTypeKretprobe:
		return present(p.Kretprobe)
	case v1alpha1.ProgTypeTC:
		return present(p.TC)
	case v1alpha1.ProgTypeTCX:
		return present(p.TCX)
	case v1alpha1.ProgTypeTracepoint:
		return present(p.Tracepoint)
	case v1alpha1.ProgTypeUprobe:
		return present(p.Uprobe)
	case v1alpha1.ProgTypeUretprobe:
		return present(p.Uretprobe)
	case v1alpha1.ProgTypeXDP:
		return present(p.XDP)
	}
	return nil
}

func present[T any, P interface {
	*T
	Info
}](info P) Info {
	if info == nil {
		return nil
	}
	return info
}

// Containers returns the selector of containers, or nil for a program that isn't attached in
// containers.
func (p Program) Containers() *v1alpha1.ContainerSelector {
	switch i := p.Info().(type) {
	case *v1alpha1.TcProgramInfo:
		return i.Containers
	case *v1alpha1.TcxProgramInfo:
		return i.Containers
	case *v1alpha1.UprobeProgramInfo:
		return i.Containers
	case *v1alpha1.XdpProgramInfo:
		return i.Containers
	}
	return nil
}
