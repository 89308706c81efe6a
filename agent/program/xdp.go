// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// xdp is a program that runs on packets that an interface receives, before the
// network stack. On each interface, the daemon runs up to ten, ordered by
// priority.
type xdp struct {
	onNetwork
	proceedOn []int32
}

// xdpActions contains the numbers of the API's actions in the daemon's API.
var xdpActions = map[v1alpha1.XdpProceedOnValue]int32{
	"aborted": 0, "drop": 1, "pass": 2, "tx": 3, "redirect": 4, "dispatcher_return": 31,
}

func xdpOf(i *v1alpha1.XdpProgramInfo, namespaced bool) Spec {
	return xdp{
		onNetwork{functionOf(gobpfman.BpfmanProgramType_XDP, i.BpfProgramCommon), i.InterfaceSelector, containersOf(i.Containers, namespaced), i.Priority},
		numbers(xdpActions, i.ProceedOn),
	}
}

func (x xdp) ID() string { return "xdp-" + x.name }

func (x xdp) AttachPoints(n Node) ([]AttachPoint, error) {
	return x.attachPoints(n, "", func(iface string, netns *string) *gobpfman.AttachInfo {
		return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{
			Priority: x.priority, Iface: iface, ProceedOn: x.proceedOn, Netns: netns,
		}}}
	})
}
