// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// fexit is a program that runs when a kernel function returns, through a BPF
// trampoline. The function is fixed when the program is loaded.
type fexit struct {
	function
	symbol string
}

func fexitOf(i *v1alpha1.FexitProgramInfo) Spec {
	return fexit{functionOf(i.BpfProgramCommon), i.FunctionName}
}

func (fexit) Type() string { return "fexit" }

func (f fexit) Incomplete() string {
	return cmp.Or(f.function.Incomplete(), whereEmpty("func_name", f.symbol))
}

func (f fexit) ID() string { return "fexit-" + sanitize(f.symbol) + "-" + f.name }

func (f fexit) LoadInfo() *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{
		Name: f.name, ProgramType: gobpfman.BpfmanProgramType_FEXIT,
		Info: &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FexitLoadInfo{
			FexitLoadInfo: &gobpfman.FexitLoadInfo{FnName: f.symbol},
		}},
	}
}

func (fexit) Needs() Needs { return Needs{} }

func (f fexit) AttachPoints(Node) ([]AttachPoint, error) {
	return []AttachPoint{newAttachPoint(f.symbol, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FexitAttachInfo{
		FexitAttachInfo: &gobpfman.FexitAttachInfo{},
	}}, "")}, nil
}
