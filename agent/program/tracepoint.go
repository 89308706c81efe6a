// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// tracepoint is a program that runs at static tracepoints of the kernel, with
// one link for each.
type tracepoint struct {
	function
	names []string
}

func tracepointOf(i *v1alpha1.TracepointProgramInfo) Spec {
	return tracepoint{functionOf(gobpfman.BpfmanProgramType_TRACEPOINT, i.BpfProgramCommon), i.Names}
}

func (t tracepoint) ID() string { return "tracepoint-" + t.name }

func (t tracepoint) AttachPoints(Node) ([]AttachPoint, error) {
	var points []AttachPoint
	for _, name := range slices.Compact(slices.Sorted(slices.Values(t.names))) {
		points = append(points, newAttachPoint(name, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{
			TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: name},
		}}, ""))
	}
	return points, nil
}
