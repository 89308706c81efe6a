// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Link is a program at a hook.
type Link struct {
	// Hook is where: the type of attachment and the interface, function, tracepoint or cgroup.
	Hook string `json:"hook"`
	// Type and Interface are those of the hook.
	Type      string `json:"type"`
	Interface string `json:"interface,omitempty"`
	// Position is the order in which programs run, from 1. It is 0 where the kernel runs all, in no order that it tells.
	Position int32 `json:"position,omitempty"`
	// Slot of a dispatcher of bpfman, from 1, for a program that the dispatcher runs.
	Slot int32 `json:"slot,omitempty"`
	// Priority is what the object of bpfman asks for, or of a TC filter without one, the filter's.
	Priority *int64 `json:"priority,omitempty"`
	// ProceedOn are the verdicts with which the next program runs. All means whatever it returns.
	ProceedOn []string `json:"proceedon,omitempty"`
	All       bool     `json:"all,omitempty"`
	ID        uint32   `json:"id"`
	Name      string   `json:"name,omitempty"`
	// Whose is whose the program is, in words.
	Whose string `json:"whose,omitempty"`
}

// Settings are what an object of bpfman asks for one of its programs.
type Settings struct {
	Priority  *int64
	ProceedOn []string
}

// Chains are the programs at the hooks of a node, by hook and in the order in which they run. The programs of a
// dispatcher follow it, at its position. Asked looks up what an object asks for the program of that function; it
// returns nothing where that isn't known.
func Chains(node v1alpha1.BpfNodeStatus, asked func(owner v1alpha1.BpfNodeOwner, function string) Settings) []Link {
	var out []Link
	for _, p := range node.Programs {
		for _, a := range p.AttachPoints {
			if a.Type == replaces {
				continue // with its dispatcher
			}
			out = append(out, link(p, a, asked))
			out = append(out, dispatched(node, p, a, asked)...)
		}
	}
	slices.SortStableFunc(out, func(a, b Link) int {
		return cmp.Or(strings.Compare(a.Hook, b.Hook), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Slot, b.Slot))
	})
	return out
}

// replaces is the attachment of a program that stands in for a function of another: so bpfman's dispatchers run theirs.
const replaces = "freplace"

func link(p v1alpha1.BpfNodeProgram, a v1alpha1.BpfNodeAttachPoint, asked func(v1alpha1.BpfNodeOwner, string) Settings) Link {
	out := Link{Hook: Where(a), Type: a.Type, Interface: a.Interface, Position: a.Position, ID: p.ID, Name: p.Name, Whose: Whose(p)}
	if p.Owner != nil {
		settings := asked(*p.Owner, p.Name)
		out.Priority, out.ProceedOn = settings.Priority, settings.ProceedOn
	}
	if out.Priority == nil && a.Priority != 0 {
		priority := int64(a.Priority)
		out.Priority = &priority
	}
	switch kind, _, _ := strings.Cut(a.Type, "/"); kind {
	case "tcx", "netkit":
		out.ProceedOn = []string{"next"} // TCX_NEXT, NETKIT_NEXT: any other verdict ends the chain
	case "tc":
		out.ProceedOn = []string{"unspec"} // TC_ACT_UNSPEC of a filter in direct action
	case "xdp": // the only one, whose verdict counts
	default:
		out.All = true
	}
	return out
}

// dispatched are the programs that a dispatcher runs at one of its attach points.
func dispatched(node v1alpha1.BpfNodeStatus, dispatcher v1alpha1.BpfNodeProgram, at v1alpha1.BpfNodeAttachPoint, asked func(v1alpha1.BpfNodeOwner, string) Settings) []Link {
	if !dispatcher.Bpfman {
		return nil
	}
	var out []Link
	for _, p := range node.Programs {
		for _, a := range p.AttachPoints {
			if a.Type != replaces || a.TargetProgramID != dispatcher.ID {
				continue
			}
			run := link(p, a, asked)
			run.Hook, run.Type, run.Interface, run.Position = Where(at), at.Type, at.Interface, at.Position
			run.Slot, run.All = a.Position, false
			out = append(out, run)
		}
	}
	return out
}
