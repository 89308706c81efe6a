// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// lsm is a program that runs at a hook of Linux's security modules, and can deny
// the operation. The hook is fixed when the program is loaded.
type lsm struct {
	function
	hook string
}

func lsmOf(i *v1alpha1.LsmProgramInfo) Spec {
	return lsm{functionOf(gobpfman.BpfmanProgramType_LSM, i.BpfProgramCommon), i.HookName}
}

func (l lsm) Incomplete() error {
	return cmp.Or(l.function.Incomplete(), whereEmpty("hook_name", l.hook)) //nolint:wrapcheck // both are this package's
}

func (l lsm) ID() string { return userobject.MemberID("lsm", l.hook, l.name) }

func (l lsm) LoadInfo() *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: l.name, ProgramType: l.kind, Info: &gobpfman.ProgSpecificInfo{
		Info: &gobpfman.ProgSpecificInfo_LsmLoadInfo{LsmLoadInfo: &gobpfman.LsmLoadInfo{HookName: l.hook}},
	}}
}

func (l lsm) AttachPoints(Node) ([]AttachPoint, error) {
	attach := &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_LsmAttachInfo{LsmAttachInfo: &gobpfman.LsmAttachInfo{}}}
	return []AttachPoint{newAttachPoint(l.hook, attach, "")}, nil
}
