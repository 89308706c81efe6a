// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// kinds contains a row for each kind of user object with one program.
var kinds = map[string]func(v1alpha1.UserObject) Kind{
	"FentryProgram":     row(func(o *v1alpha1.FentryProgram) Kind { return fentryOf(&o.Spec.FentryProgramInfo) }),
	"FexitProgram":      row(func(o *v1alpha1.FexitProgram) Kind { return fexitOf(&o.Spec.FexitProgramInfo) }),
	"KprobeProgram":     row(func(o *v1alpha1.KprobeProgram) Kind { return kprobeOf(&o.Spec.KprobeProgramInfo) }),
	"TcProgram":         row(func(o *v1alpha1.TcProgram) Kind { return tcOf(&o.Spec.TcProgramInfo) }),
	"TcNsProgram":       row(func(o *v1alpha1.TcNsProgram) Kind { return tcNsOf(o.Namespace, &o.Spec.TcNsProgramInfo) }),
	"TcxProgram":        row(func(o *v1alpha1.TcxProgram) Kind { return tcxOf(&o.Spec.TcxProgramInfo) }),
	"TcxNsProgram":      row(func(o *v1alpha1.TcxNsProgram) Kind { return tcxNsOf(o.Namespace, &o.Spec.TcxNsProgramInfo) }),
	"TracepointProgram": row(func(o *v1alpha1.TracepointProgram) Kind { return tracepointOf(&o.Spec.TracepointProgramInfo) }),
	"UprobeProgram":     row(func(o *v1alpha1.UprobeProgram) Kind { return uprobeOf("uprobe", &o.Spec.UprobeProgramInfo) }),
	"UprobeNsProgram": row(func(o *v1alpha1.UprobeNsProgram) Kind {
		return uprobeNsOf("uprobe", o.Namespace, &o.Spec.UprobeNsProgramInfo)
	}),
	"XdpProgram":   row(func(o *v1alpha1.XdpProgram) Kind { return xdpOf(&o.Spec.XdpProgramInfo) }),
	"XdpNsProgram": row(func(o *v1alpha1.XdpNsProgram) Kind { return xdpNsOf(o.Namespace, &o.Spec.XdpNsProgramInfo) }),
}

// members contains a row for each type of program in a BpfApplication. A row
// returns nil if the configuration for the type is missing.
var members = map[v1alpha1.EBPFProgType]func(*v1alpha1.BpfApplicationProgram) Kind{
	v1alpha1.ProgTypeFentry:     func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Fentry, fentryOf) },
	v1alpha1.ProgTypeFexit:      func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Fexit, fexitOf) },
	v1alpha1.ProgTypeKprobe:     func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Kprobe, kprobeOf) },
	v1alpha1.ProgTypeKretprobe:  func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Kretprobe, kretprobeOf) },
	v1alpha1.ProgTypeTC:         func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.TC, tcOf) },
	v1alpha1.ProgTypeTCX:        func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.TCX, tcxOf) },
	v1alpha1.ProgTypeTracepoint: func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Tracepoint, tracepointOf) },
	v1alpha1.ProgTypeUprobe:     func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Uprobe, as("uprobe", uprobeOf)) },
	v1alpha1.ProgTypeUretprobe:  func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.Uretprobe, as("uretprobe", uprobeOf)) },
	v1alpha1.ProgTypeXDP:        func(p *v1alpha1.BpfApplicationProgram) Kind { return of(p.XDP, xdpOf) },
}

// nsMembers contains a row for each type of program in a BpfNsApplication, with
// its namespace as the first argument.
var nsMembers = map[v1alpha1.EBPFProgType]func(string, *v1alpha1.BpfNsApplicationProgram) Kind{
	v1alpha1.ProgTypeTC:  func(ns string, p *v1alpha1.BpfNsApplicationProgram) Kind { return of(p.TC, as(ns, tcNsOf)) },
	v1alpha1.ProgTypeTCX: func(ns string, p *v1alpha1.BpfNsApplicationProgram) Kind { return of(p.TCX, as(ns, tcxNsOf)) },
	v1alpha1.ProgTypeUprobe: func(ns string, p *v1alpha1.BpfNsApplicationProgram) Kind {
		return of(p.Uprobe, as(ns, nsUprobeAs("uprobe")))
	},
	v1alpha1.ProgTypeUretprobe: func(ns string, p *v1alpha1.BpfNsApplicationProgram) Kind {
		return of(p.Uretprobe, as(ns, nsUprobeAs("uretprobe")))
	},
	v1alpha1.ProgTypeXDP: func(ns string, p *v1alpha1.BpfNsApplicationProgram) Kind { return of(p.XDP, as(ns, xdpNsOf)) },
}

// row converts a function for the Go type of one kind to a function for all
// user objects.
func row[T v1alpha1.UserObject](kind func(T) Kind) func(v1alpha1.UserObject) Kind {
	return func(o v1alpha1.UserObject) Kind { return kind(o.(T)) } //nolint:errcheck,forcetypeassert // the key of the row is the kind
}

// of returns kind(info), or nil if info is nil.
func of[I any](info *I, kind func(*I) Kind) Kind {
	if info == nil {
		return nil
	}
	return kind(info)
}

// as sets the first argument of a kind's constructor.
func as[I any](first string, kind func(string, *I) Kind) func(*I) Kind {
	return func(info *I) Kind { return kind(first, info) }
}

func nsUprobeAs(member string) func(string, *v1alpha1.UprobeNsProgramInfo) Kind {
	return func(namespace string, info *v1alpha1.UprobeNsProgramInfo) Kind {
		return uprobeNsOf(member, namespace, info)
	}
}
