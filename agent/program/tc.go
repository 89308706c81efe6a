// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// tc is a classifier that runs in the traffic control layer, on ingress or
// egress. On each interface and direction, the daemon runs up to ten, ordered
// by priority.
type tc struct {
	onNetwork
	direction string
	proceedOn []int32
}

// tcActions contains the numbers of the API's actions in the daemon's API.
var tcActions = map[v1alpha1.TcProceedOnValue]int32{
	"unspec": -1, "ok": 0, "reclassify": 1, "shot": 2, "pipe": 3, "stolen": 4,
	"queued": 5, "repeat": 6, "redirect": 7, "trap": 8, "dispatcher_return": 30,
}

func tcOf(i *v1alpha1.TcProgramInfo, namespaced bool) Spec {
	return tc{
		onNetwork{functionOf(gobpfman.BpfmanProgramType_TC, i.BpfProgramCommon), i.InterfaceSelector, containersOf(i.Containers, namespaced), i.Priority},
		i.Direction, numbers(tcActions, i.ProceedOn),
	}
}

func (t tc) ID() string { return "tc-" + t.direction + "-" + t.name }

func (t tc) AttachPoints(n Node) ([]AttachPoint, error) {
	return t.attachPoints(n, " "+t.direction, func(iface string, netns *string) *gobpfman.AttachInfo {
		return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{
			Priority: t.priority, Iface: iface, Direction: t.direction, ProceedOn: t.proceedOn, Netns: netns,
		}}}
	})
}
