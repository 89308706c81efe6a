// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Hook returns the parts of the attach point, as reports have them. It is nil for one that stands for interfaces that
// nothing is attached to.
func (p AttachPoint) Hook() *v1alpha1.BpfProgramHook {
	switch i := p.Info.GetInfo().(type) {
	case *gobpfman.AttachInfo_XdpAttachInfo:
		at := i.XdpAttachInfo
		return &v1alpha1.BpfProgramHook{
			Interface: at.GetIface(), NetNS: onNode(at.GetNetns()), Priority: new(at.GetPriority()), ProceedOn: words(xdpActions, at.GetProceedOn()),
		}
	case *gobpfman.AttachInfo_TcAttachInfo:
		at := i.TcAttachInfo
		return &v1alpha1.BpfProgramHook{
			Interface: at.GetIface(), NetNS: onNode(at.GetNetns()), Direction: at.GetDirection(), Priority: new(at.GetPriority()),
			ProceedOn: words(tcActions, at.GetProceedOn()),
		}
	case *gobpfman.AttachInfo_TcxAttachInfo:
		at := i.TcxAttachInfo
		return &v1alpha1.BpfProgramHook{Interface: at.GetIface(), NetNS: onNode(at.GetNetns()), Direction: at.GetDirection(), Priority: new(at.GetPriority())}
	case *gobpfman.AttachInfo_TracepointAttachInfo:
		return &v1alpha1.BpfProgramHook{Tracepoint: i.TracepointAttachInfo.GetTracepoint()}
	case *gobpfman.AttachInfo_KprobeAttachInfo:
		return &v1alpha1.BpfProgramHook{Function: i.KprobeAttachInfo.GetFnName(), Offset: i.KprobeAttachInfo.GetOffset()}
	case *gobpfman.AttachInfo_UprobeAttachInfo:
		at := i.UprobeAttachInfo
		return &v1alpha1.BpfProgramHook{
			Target: at.GetTarget(), Function: at.GetFnName(), Offset: at.GetOffset(), PID: at.Pid, ContainerPID: at.ContainerPid,
		}
	case *gobpfman.AttachInfo_FentryAttachInfo, *gobpfman.AttachInfo_FexitAttachInfo:
		return &v1alpha1.BpfProgramHook{Function: p.Name} // which is fixed when the program is loaded
	}
	return nil
}

// onNode returns the path on the node of a network namespace, of which path is that in the daemon's file system: see
// Container.netns.
func onNode(path string) string {
	if rest, ok := strings.CutPrefix(path, "/host/proc/1/root/"); ok {
		return "/" + rest
	}
	if strings.HasPrefix(path, "/host/proc/") {
		return strings.TrimPrefix(path, "/host")
	}
	return path
}

// words converts the daemon's numbers to actions.
func words[T ~string](of map[T]int32, numbers []int32) []string {
	out := make([]string, 0, len(numbers))
	for _, n := range numbers {
		for word, number := range of {
			if number == n {
				out = append(out, string(word))
			}
		}
	}
	return out
}
