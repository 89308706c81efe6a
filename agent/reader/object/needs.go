// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/agent/reader/plain"
)

// needs returns what programs need of a kernel: BPF trampolines, its types, options of its configuration, and its
// functions and variables. It also sets Program.Needs, without names.
func (a *adaption) needs(programs []Program) (found []string) {
	trampolines := map[string]bool{}
	for _, p := range programs {
		switch kind := strings.TrimSuffix(p.Type, ".s"); kind {
		case "fentry", "fexit", "xdp":
			trampolines[kind] = p.Unsupported == "" || trampolines[kind]
		}
	}
	maps.DeleteFunc(trampolines, func(_ string, needed bool) bool { return !needed })
	if len(trampolines) > 0 {
		found = append(found, "BPF trampolines, for "+strings.Join(slices.Sorted(maps.Keys(trampolines)), ", "))
	}
	for _, s := range a.sections {
		if a.infos == nil || !s.code() {
			continue
		}
		if _, _, relocations := a.infos.Section(s.name); len(relocations) > 0 {
			found = append(found, "BTF, for its CO-RE relocations")
			break
		}
	}
	for _, section := range []struct{ name, what string }{{kconfigSection, "its configuration"}, {ksymsSection, "its functions and variables"}} {
		var names []string
		for name, e := range a.external {
			if e.section == section.name {
				names = append(names, plain.Text(name))
			}
		}
		if slices.Sort(names); len(names) > 0 {
			found = append(found, section.what+": "+strings.Join(names, ", "))
		}
	}
	return found
}
