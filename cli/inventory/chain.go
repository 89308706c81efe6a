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
	// Hook describes the hook: the type of the attachment, and the interface, function, tracepoint, or cgroup.
	Hook string `json:"hook"`
	// Type and Interface are the type and interface of the hook.
	Type      string `json:"type"`
	Interface string `json:"interface,omitempty"`
	// NetNs is the inode number of the interface's network namespace, if it isn't the host's. Namespace and Pod are the pod of
	// the hook.
	NetNs     string `json:"netns,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Position is the position in the order in which programs run, starting at 1. It is 0 if the kernel runs all
	// programs in an unknown order.
	Position int32 `json:"position,omitempty"`
	// Slot is the slot in a dispatcher of bpfman, starting at 1, if a dispatcher runs the program.
	Slot int32 `json:"slot,omitempty"`
	// Priority is the priority in the object of bpfman. For a TC filter without an object, it is the filter's
	// priority.
	Priority *int32 `json:"priority,omitempty"`
	// ProceedOn are the results after which the next program runs. All means that it always runs.
	ProceedOn []string `json:"proceedon,omitempty"`
	All       bool     `json:"all,omitempty"`
	// Skips are the IDs of the programs that don't run after any other result.
	Skips []uint32 `json:"skips,omitempty"`
	ID    uint32   `json:"id"`
	Name  string   `json:"name,omitempty"`
	// Whose describes the owner or holder of the program.
	Whose string `json:"whose,omitempty"`
	// Ours means that an object of bpfman owns the program.
	Ours bool `json:"-"`
	// AverageNanoseconds is how long a run takes on average, if the inspector measures that.
	AverageNanoseconds int64 `json:"averagenanoseconds,omitempty"`
}

// Settings are the settings of a program in its object.
type Settings struct {
	Priority  *int32
	ProceedOn []string
}

// Chains returns the programs at the hooks of a node, in the order in which they run: for each interface, the hooks in
// the order in which the kernel passes a packet on, and then the other hooks by name. The programs of a dispatcher
// follow the dispatcher, with the same position. asked returns the settings in an object for the
// program with a function, or nothing if they aren't known.
func Chains(node v1alpha1.BpfNodeStatus, asked func(owner v1alpha1.BpfNodeOwner, function string) Settings) []Link {
	var out []Link
	for _, p := range node.Programs {
		for _, a := range p.AttachPoints {
			if a.Type == replaces {
				continue // listed with its dispatcher
			}
			out = append(out, link(p, a, asked))
			out = append(out, dispatched(node, p, a, asked)...)
		}
	}
	slices.SortStableFunc(out, func(a, b Link) int {
		return cmp.Or(compareHooks(a, b), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Slot, b.Slot))
	})
	for i := range out {
		out[i].Skips = skipped(out[i], out[i+1:])
	}
	return out
}

// stages are the hooks of an interface in the order in which the kernel runs them for a packet (Linux's
// __netif_receive_skb_core and __dev_queue_xmit). TCX runs before TC's filters, and these before those of the queueing
// discipline.
var stages = []string{"xdp", "tcx/ingress", "tc/ingress", "tcx/egress", "tc/egress", "tc/qdisc"}

func compareHooks(a, b Link) int {
	if a.Interface == "" || b.Interface == "" {
		return cmp.Or(-cmp.Compare(min(len(a.Interface), 1), min(len(b.Interface), 1)), strings.Compare(a.Hook, b.Hook))
	}
	_, placeA, _ := strings.Cut(a.Hook, " ")
	_, placeB, _ := strings.Cut(b.Hook, " ")
	return cmp.Or(strings.Compare(placeA, placeB), cmp.Compare(stage(a), stage(b)), strings.Compare(a.Hook, b.Hook))
}

func stage(l Link) int {
	if i := slices.Index(stages, l.Type); i >= 0 {
		return i
	}
	return len(stages)
}

// skipped returns the programs among the later ones that don't run if a program ends the chain. A result of TCX other
// than next also ends TC's filters.
func skipped(l Link, later []Link) []uint32 {
	if l.All || l.Type == "lsm" { // the order of LSM programs isn't known
		return nil
	}
	kind, direction, _ := strings.Cut(l.Type, "/")
	_, place, _ := strings.Cut(l.Hook, " ")
	var ids []uint32
	for _, other := range later {
		otherKind, otherDirection, _ := strings.Cut(other.Type, "/")
		_, otherPlace, _ := strings.Cut(other.Hook, " ")
		chained := otherKind == kind || kind == "tcx" && otherKind == "tc"
		runByIt := other.Slot > 0 && l.Slot == 0 && other.Hook == l.Hook && other.Position == l.Position
		if chained && otherDirection == direction && otherPlace == place && !runByIt {
			ids = append(ids, other.ID)
		}
	}
	return ids
}

// replaces is the attachment type of a program that replaces a function of another program. bpfman's dispatchers
// run programs this way.
const replaces = "freplace"

func link(p v1alpha1.BpfNodeProgram, a v1alpha1.BpfNodeAttachPoint, asked func(v1alpha1.BpfNodeOwner, string) Settings) Link {
	out := Link{
		Hook: Where(a), Type: a.Type, Interface: a.Interface, NetNs: a.NetNs, Namespace: a.Namespace, Pod: a.Pod,
		Position: a.Position, ID: p.ID, Name: p.Name, Whose: OwnerOf(p),
	}
	if p.RunTime != nil {
		out.AverageNanoseconds = p.RunTime.AverageNanoseconds
	}
	if p.Owner != nil {
		out.Ours = true
		settings := asked(*p.Owner, p.Name)
		out.Priority, out.ProceedOn = settings.Priority, settings.ProceedOn
	}
	if out.Priority == nil && a.Priority != 0 {
		priority := a.Priority
		out.Priority = &priority
	}
	switch kind, _, _ := strings.Cut(a.Type, "/"); kind {
	case "tcx", "netkit":
		out.ProceedOn = []string{"next"} // TCX_NEXT, NETKIT_NEXT: any other result ends the chain
	case "tc":
		out.ProceedOn = []string{"unspec"} // TC_ACT_UNSPEC of a filter in direct-action mode
	case "lsm":
		out.ProceedOn = []string{"0"} // any other result denies the operation
	case "xdp": // it is the only program
	default:
		out.All = true
	}
	return out
}

// dispatched returns the programs that a dispatcher runs at one of its attach points.
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
			run.NetNs, run.Namespace, run.Pod = at.NetNs, at.Namespace, at.Pod
			run.Slot, run.All = a.Position, false
			out = append(out, run)
		}
	}
	return out
}
