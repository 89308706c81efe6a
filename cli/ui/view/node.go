// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package view

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/inventory"
)

// Node is the view of one node.
type Node struct {
	Cell   Cell    `json:"cell"`
	Kernel string  `json:"kernel"`
	Places []Place `json:"places"`
	// Unattached are programs without a known attach point.
	Unattached []inventory.Program        `json:"unattached"`
	Maps       []Map                      `json:"maps"`
	Conflicts  []v1alpha1.BpfNodeConflict `json:"conflicts"`
	Omitted    *v1alpha1.BpfNodeOmitted   `json:"omitted,omitempty"`
	Problems
}

// Place is what programs are attached to: a network interface, a tracepoint, a function, or a cgroup.
type Place struct {
	// Group is the section of the page: Interfaces, Pods, Tracepoints, Functions, Cgroups, or Others.
	Group string `json:"group"`
	Name  string `json:"name"`
	// Pod is the namespace and the name of the place's pod, or "".
	Pod   string `json:"pod,omitempty"`
	Hooks []Hook `json:"hooks"`
}

// Hook is a hook of a place, such as tcx/ingress.
type Hook struct {
	Type string `json:"type"`
	// Ordered means that the programs run one after the other, and that each decides whether the next one runs.
	Ordered  bool     `json:"ordered,omitempty"`
	Programs []AtHook `json:"programs"`
}

// AtHook is a program at a hook.
type AtHook struct {
	inventory.Link

	Bpfman bool                   `json:"bpfman,omitempty"`
	Owner  *v1alpha1.BpfNodeOwner `json:"owner,omitempty"`
	// Conflict is the conflict that the program takes part in.
	Conflict string `json:"conflict,omitempty"`
}

// Map is a map of a node.
type Map struct {
	inventory.Map

	// Unused means that neither a program nor a pod uses it.
	Unused bool `json:"unused,omitempty"`
	// Stale means that pods mount it, but no program uses it anymore.
	Stale bool `json:"stale,omitempty"`
}

// The sections of a node's page, in order.
var groups = []string{"Interfaces", "Pods", "Tracepoints", "Functions", "Cgroups", "Others"}

// NodeOf returns the view of a node. cell is the node's cell in the view of the cluster. If only isn't nil, the view has what
// concerns this pod.
func NodeOf(cell Cell, node *v1alpha1.BpfNode, pods []corev1.Pod, only *corev1.Pod, asked func(v1alpha1.BpfNodeOwner, string) inventory.Settings, problems Problems) *Node {
	v := &Node{
		Cell: cell, Problems: problems, Kernel: node.Status.KernelVersion, Omitted: node.Status.Omitted,
		Places: []Place{}, Unattached: []inventory.Program{}, Maps: []Map{}, Conflicts: append([]v1alpha1.BpfNodeConflict{}, node.Status.Conflicts...),
	}
	programs := map[uint32]v1alpha1.BpfNodeProgram{}
	for _, p := range inventory.Programs(node) {
		programs[p.ID] = p.BpfNodeProgram
		if len(p.AttachPoints) == 0 && only == nil {
			v.Unattached = append(v.Unattached, p)
		}
	}
	for _, l := range inventory.Chains(node.Status, asked) {
		p := programs[l.ID]
		if inventory.Routine(p) || only != nil && !l.Sees(only) {
			continue
		}
		v.place(AtHook{Link: l, Bpfman: p.Bpfman, Owner: p.Owner, Conflict: conflictOf(node.Status.Conflicts, l)})
	}
	slices.SortStableFunc(v.Places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.rank(only), a.rank(only)), cmp.Compare(slices.Index(groups, a.Group), slices.Index(groups, b.Group)))
	})
	for _, m := range inventory.Maps(node, pods) {
		if only == nil || m.MountedBy(only) {
			v.Maps = append(v.Maps, Map{m, m.Unused(), m.Stale()})
		}
	}
	return v
}

// rank is 1 for places in a pod, which come first in its view.
func (p Place) rank(only *corev1.Pod) int {
	if only != nil && p.Pod == only.Namespace+"/"+only.Name {
		return 1
	}
	return 0
}

// place adds a program to its place and hook. The links of a place and of a hook follow each other.
func (v *Node) place(p AtHook) {
	kind, name, _ := strings.Cut(p.Hook, " ")
	i := slices.IndexFunc(v.Places, func(known Place) bool { return known.Name == name })
	if i < 0 {
		i = len(v.Places)
		v.Places = append(v.Places, Place{Group: groupOf(p.Link, name), Name: name})
		if p.Pod != "" {
			v.Places[i].Pod = p.Namespace + "/" + p.Pod
		}
	}
	place := &v.Places[i]
	if last := len(place.Hooks) - 1; last >= 0 && place.Hooks[last].Type == kind {
		place.Hooks[last].Programs = append(place.Hooks[last].Programs, p)
		return
	}
	place.Hooks = append(place.Hooks, Hook{Type: kind, Ordered: !p.All && p.Type != "lsm", Programs: []AtHook{p}})
}

func groupOf(l inventory.Link, place string) string {
	switch {
	case l.Interface != "" && place != l.Interface:
		return "Pods"
	case l.Interface != "":
		return "Interfaces"
	case strings.Contains(l.Type, "tracepoint"):
		return "Tracepoints"
	case strings.Contains(l.Type, "probe"), l.Type == "fentry", l.Type == "fexit", l.Type == "fmod_ret", l.Type == "lsm", l.Type == "perf_event":
		return "Functions"
	case strings.HasPrefix(l.Type, "cgroup"):
		return "Cgroups"
	default:
		return "Others"
	}
}

// conflictOf returns the message of the conflict that a program takes part in: as the other program, or as the
// program of the object that is affected.
func conflictOf(conflicts []v1alpha1.BpfNodeConflict, l inventory.Link) string {
	for _, c := range conflicts {
		if c.ProgramID != 0 && c.ProgramID == l.ID || c.ProgramID == 0 && c.Owner != nil && l.Whose == c.Owner.String() {
			return c.Type + ": " + c.Message
		}
	}
	return ""
}
