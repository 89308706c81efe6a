// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
)

// What programs can need of a kernel, in Program.Needs.
const (
	needsTrampolines = "BPF trampolines"
	needsModule      = "security module bpf"
	needsTypes       = "BTF"
	needsOptions     = "configuration"
	needsSymbols     = "functions and variables"
)

// needs sets Program.Needs, and returns what the object needs, with names: BPF trampolines, the kernel's types, options of
// its configuration, and its functions and variables.
func (a *adaption) needs(programs []Program) (found []string) {
	trampolines := map[string]bool{}
	for i := range programs {
		p := &programs[i]
		switch kind := strings.TrimSuffix(p.Type, ".s"); kind {
		case "fentry", "fexit", "lsm", "xdp":
			if p.Unsupported == "" {
				trampolines[kind] = true
				p.Needs = append(p.Needs, needsTrampolines)
			}
			if kind == "lsm" {
				p.Needs = append(p.Needs, needsModule)
			}
		}
	}
	if len(trampolines) > 0 {
		found = append(found, needsTrampolines+", for "+strings.Join(slices.Sorted(maps.Keys(trampolines)), ", "))
	}
	if trampolines["lsm"] {
		found = append(found, needsModule+", for lsm")
	}
	where := a.neededAt()
	if len(where[needsTypes]) > 0 {
		found = append(found, needsTypes+", for its CO-RE relocations")
	}
	for _, section := range []struct{ name, what string }{{kconfigSection, needsOptions}, {ksymsSection, needsSymbols}} {
		var names []string
		for name, e := range a.external {
			if e.section == section.name {
				names = append(names, plain.Text(name))
			}
		}
		if slices.Sort(names); len(names) > 0 {
			found = append(found, "its "+section.what+": "+strings.Join(names, ", "))
		}
	}
	a.setNeeds(programs, where)
	return found
}

// setNeeds sets Program.Needs of the programs that contain the instructions, or call the functions that do.
func (a *adaption) setNeeds(programs []Program, where map[string][]place) {
	for _, what := range []string{needsTypes, needsOptions, needsSymbols} {
		needing, graph := map[string]bool{}, a.callGraph()
		for _, at := range where[what] {
			graph.fail(at, func(f function) {
				for _, program := range f.programs {
					needing[program] = true
				}
			})
		}
		for i := range programs {
			if p := &programs[i]; needing[p.Name] {
				p.Needs = append(p.Needs, what)
			}
		}
	}
}

// neededAt returns the instructions that need something of the kernel, by what it is.
func (a *adaption) neededAt() map[string][]place {
	found := map[string][]place{}
	for i, s := range a.sections {
		if !s.code() {
			continue
		}
		if a.infos != nil {
			_, _, relocations := a.infos.Section(s.name)
			for _, r := range relocations {
				found[needsTypes] = append(found[needsTypes], place{i, uint64(r.Offset) * instructionSize})
			}
		}
		for _, r := range a.relocations(i) {
			switch e := a.external[a.symbols[r.symbol].name]; e.section {
			case kconfigSection:
				found[needsOptions] = append(found[needsOptions], place{i, r.offset})
			case ksymsSection:
				found[needsSymbols] = append(found[needsSymbols], place{i, r.offset})
			}
		}
	}
	return found
}
