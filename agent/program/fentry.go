// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// fentry is a program that runs at the entry of a kernel function, through a
// BPF trampoline. The function is fixed when the program is loaded.
type fentry struct {
	function
	symbol string
}

func fentryOf(i *v1alpha1.FentryProgramInfo) Spec {
	return fentry{functionOf(i.BpfProgramCommon), i.FunctionName}
}

func (fentry) Type() string { return "fentry" }

func (f fentry) Incomplete() string {
	return cmp.Or(f.function.Incomplete(), whereEmpty("func_name", f.symbol))
}

func (f fentry) ID() string { return "fentry-" + sanitize(f.symbol) + "-" + f.name }

func (f fentry) LoadInfo() *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{
		Name: f.name, ProgramType: gobpfman.BpfmanProgramType_FENTRY,
		Info: &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FentryLoadInfo{
			FentryLoadInfo: &gobpfman.FentryLoadInfo{FnName: f.symbol},
		}},
	}
}

func (fentry) Needs() Needs { return Needs{} }

func (f fentry) AttachPoints(Node) ([]AttachPoint, error) {
	return []AttachPoint{newAttachPoint(f.symbol, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FentryAttachInfo{
		FentryAttachInfo: &gobpfman.FentryAttachInfo{},
	}}, "")}, nil
}
