// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// specOf returns a program of a user object as the daemon loads it. It has a row for each type.
func specOf(p userobject.Program, index int) Spec {
	member := strings.ToLower(string(p.Type)) // such as kprobe or kretprobe
	switch i := p.Info().(type) {
	case *v1alpha1.FentryProgramInfo:
		return fentryOf(i)
	case *v1alpha1.FexitProgramInfo:
		return fexitOf(i)
	case *v1alpha1.KprobeProgramInfo:
		return kprobeOf(member, i)
	case *v1alpha1.LsmProgramInfo:
		return lsmOf(i)
	case *v1alpha1.TcProgramInfo:
		return tcOf(i, p.Namespaced)
	case *v1alpha1.TcxProgramInfo:
		return tcxOf(i, p.Namespaced)
	case *v1alpha1.TracepointProgramInfo:
		return tracepointOf(i)
	case *v1alpha1.UprobeProgramInfo:
		return uprobeOf(member, i, p.Namespaced)
	case *v1alpha1.XdpProgramInfo:
		return xdpOf(i, p.Namespaced)
	}
	return untypedOf(index, p.Type)
}
