// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"
	"strconv"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// kprobe is a program that runs at the entry of a kernel function or, as a
// kretprobe, when it returns. The daemon's API doesn't distinguish them. The
// daemon of v0.6.0 uses the section in the object.
type kprobe struct {
	function
	member string // kprobe or kretprobe, as in an application
	symbol string
	offset uint64
	// returns means that the object says that it is a kretprobe.
	returns bool
}

// ReturnProbe implements [ReturnProbe].
func (k kprobe) ReturnProbe() string {
	return returnProbe("kretprobe", k.returns || k.member == "kretprobe")
}

func kprobeOf(member string, i *v1alpha1.KprobeProgramInfo) Spec {
	return kprobe{functionOf(gobpfman.BpfmanProgramType_KPROBE, i.BpfProgramCommon), member, i.FunctionName, i.Offset, i.RetProbe}
}

func (k kprobe) Incomplete() error {
	return cmp.Or(k.function.Incomplete(), k.unlessLoadedOnly("func_name", k.symbol)) //nolint:wrapcheck // both are this package's
}

func (k kprobe) ID() string { return userobject.MemberID(k.member, k.symbol, k.name) }

func (k kprobe) AttachPoints(Node) ([]AttachPoint, error) {
	return []AttachPoint{newAttachPoint(k.symbol+plus(k.offset), &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_KprobeAttachInfo{
		KprobeAttachInfo: &gobpfman.KprobeAttachInfo{FnName: k.symbol, Offset: k.offset},
	}}, "")}, nil
}

// plus formats an offset after a symbol.
func plus(offset uint64) string {
	if offset == 0 {
		return ""
	}
	return "+0x" + strconv.FormatUint(offset, 16)
}
