// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// relocate applies the CO-RE relocations: the instructions get the offsets, sizes, and values of the kernel's types.
// What the kernel lacks becomes an instruction that the verifier refuses unless the program checks for it before, as
// libbpf does.
func (a *adaption) relocate() {
	if a.infos == nil {
		return
	}
	relocated := map[string]bool{}
	for i := range a.sections {
		s := &a.sections[i]
		_, _, offsets := a.infos.Section(s.name)
		if !s.code() || len(offsets) == 0 {
			continue
		}
		a.forKernel = true
		err := problem.Errorf(problem.ObjectUnusual, "it has two sections %s, and its CO-RE relocations don't say which one they are for", plain.Quote(s.name))
		if !relocated[s.name] {
			relocated[s.name] = true
			err = a.relocateSection(s, offsets)
		}
		if err != nil {
			for _, o := range offsets {
				a.fail(i, uint64(o.Offset)*instructionSize, err)
			}
		}
	}
}

func (a *adaption) relocateSection(s *section, offsets btf.CORERelocationOffsets) error {
	types, err := a.kernel.Types()
	if err != nil {
		return problem.Errorf(problem.NoKernelTypes, "it has CO-RE relocations, which need the kernel's types: %w", err)
	}
	relocations := make([]*btf.CORERelocation, 0, len(offsets))
	for _, o := range offsets {
		relocations = append(relocations, o.Relo)
	}
	fixups, err := btf.CORERelocate(relocations, []*btf.Spec{types}, a.order, a.types.TypeID)
	if err != nil {
		return problem.Errorf(problem.KernelTypesDiffer, "its CO-RE relocations don't fit this kernel: %w", err)
	}
	code := s.data
	for n, o := range offsets {
		at := uint64(o.Offset) * instructionSize
		if at >= uint64(len(code)) {
			return problem.Errorf(problem.ObjectUnusual, "its CO-RE relocation at %d is outside of its section", at)
		}
		if err := a.fix(code[at:], &fixups[n]); err != nil {
			return problem.Errorf(problem.ObjectUnusual, "its CO-RE relocation at instruction %d doesn't fit: %w", o.Offset, err)
		}
	}
	return nil
}

// fix changes the instruction at the beginning of code.
func (a *adaption) fix(code []byte, fixup *btf.COREFixup) error {
	var instruction asm.Instruction
	if err := instruction.Unmarshal(bytes.NewReader(code), a.order, "linux"); err != nil {
		return fmt.Errorf("decode it: %w", err)
	}
	if err := fixup.Apply(&instruction); err != nil {
		return fmt.Errorf("change it: %w", err)
	}
	var fixed bytes.Buffer
	if _, err := instruction.Marshal(&fixed, a.order); err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	copy(code, fixed.Bytes()) // no fixup changes how long an instruction is
	return nil
}
