// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// tcx is a classifier in the kernel's list of programs for an interface and
// direction (Linux 6.6 and later), ordered by priority.
type tcx struct {
	onNetwork
	direction string
}

func tcxOf(i *v1alpha1.TcxProgramInfo, namespaced bool) Spec {
	return tcx{
		onNetwork{functionOf(gobpfman.BpfmanProgramType_TCX, i.BpfProgramCommon), i.InterfaceSelector, containersOf(i.Containers, namespaced), i.Priority},
		i.Direction,
	}
}

func (t tcx) ID() string { return "tcx-" + t.direction + "-" + t.name }

func (t tcx) AttachPoints(n Node) ([]AttachPoint, error) {
	return t.attachPoints(n, " "+t.direction, func(iface string, netns *string) *gobpfman.AttachInfo {
		return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{
			Priority: t.priority, Iface: iface, Direction: t.direction, Netns: netns,
		}}}
	})
}
