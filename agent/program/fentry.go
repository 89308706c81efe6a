// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// fentry is a program that runs at the entry of a kernel function or, as fexit,
// when it returns, through a BPF trampoline. The function is fixed when the
// program is loaded.
type fentry struct {
	function
	member string // fentry or fexit, as in an application
	symbol string
	load   *gobpfman.ProgSpecificInfo
	attach *gobpfman.AttachInfo
}

func fentryOf(i *v1alpha1.FentryProgramInfo) Spec {
	return fentry{
		functionOf(gobpfman.BpfmanProgramType_FENTRY, i.BpfProgramCommon), "fentry", i.FunctionName,
		&gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FentryLoadInfo{FentryLoadInfo: &gobpfman.FentryLoadInfo{FnName: i.FunctionName}}},
		&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FentryAttachInfo{FentryAttachInfo: &gobpfman.FentryAttachInfo{}}},
	}
}

func fexitOf(i *v1alpha1.FexitProgramInfo) Spec {
	return fentry{
		functionOf(gobpfman.BpfmanProgramType_FEXIT, i.BpfProgramCommon), "fexit", i.FunctionName,
		&gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FexitLoadInfo{FexitLoadInfo: &gobpfman.FexitLoadInfo{FnName: i.FunctionName}}},
		&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FexitAttachInfo{FexitAttachInfo: &gobpfman.FexitAttachInfo{}}},
	}
}

func (f fentry) Incomplete() error {
	return cmp.Or(f.function.Incomplete(), whereEmpty("func_name", f.symbol)) //nolint:wrapcheck // both are this package's
}

func (f fentry) ID() string { return userobject.MemberID(f.member, f.symbol, f.name) }

func (f fentry) LoadInfo() *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: f.name, ProgramType: f.kind, Info: f.load}
}

func (f fentry) AttachPoints(Node) ([]AttachPoint, error) {
	return []AttachPoint{newAttachPoint(f.symbol, f.attach, "")}, nil
}
