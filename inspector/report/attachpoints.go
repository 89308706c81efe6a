// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/cgroup"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/internal/printable"
)

// attachPoints returns the attach points of each program.
func attachPoints(facts *Facts) map[uint32][]v1alpha1.BpfNodeAttachPoint {
	a := attached{
		facts: facts, points: map[uint32][]v1alpha1.BpfNodeAttachPoint{},
		hookSeen: make([]bool, len(facts.Hooks)), cgroupSeen: make([]bool, len(facts.CgroupHooks)),
	}
	for _, l := range facts.Links {
		a.link(l)
	}
	for i, hook := range facts.Hooks {
		if !a.hookSeen[i] && hook.Link == 0 {
			a.add(hook.Program, a.ofHook(hook))
		}
	}
	for i, hook := range facts.CgroupHooks {
		if !a.cgroupSeen[i] {
			a.add(hook.Program, v1alpha1.BpfNodeAttachPoint{Type: hook.Type, Target: printable.Text(hook.Cgroup), Position: hook.Position})
		}
	}
	for _, event := range facts.PerfEvents {
		point := a.ofAttachment(event.Attachment)
		// The perf event of a link is also open in the process that has the link.
		if !slices.ContainsFunc(a.points[event.Program], func(p v1alpha1.BpfNodeAttachPoint) bool { return p.Type == point.Type && p.Target == point.Target }) {
			a.add(event.Program, point)
		}
	}
	a.replaced()
	for program, points := range a.points {
		a.points[program] = sorted(points, func(p v1alpha1.BpfNodeAttachPoint) []string {
			return []string{p.Type, p.NetNs, p.Interface, fmt.Sprintf("%8d", p.Position), p.Target, fmt.Sprintf("%10d", p.LinkID), fmt.Sprintf("%10d", p.Priority)}
		})
	}
	return a.points
}

type attached struct {
	facts  *Facts
	points map[uint32][]v1alpha1.BpfNodeAttachPoint
	// hookSeen and cgroupSeen mark what belongs to a link, so that it isn't listed twice.
	hookSeen, cgroupSeen []bool
}

func (a *attached) add(program uint32, point v1alpha1.BpfNodeAttachPoint) {
	a.points[program] = append(a.points[program], point)
}

// link adds the attach point of a link. A link whose interface or cgroup was removed has
// none.
func (a *attached) link(l kernel.Link) {
	if l.Program == 0 && l.Map == 0 {
		return
	}
	point := a.ofAttachment(l.Attachment)
	point.LinkID = l.ID
	switch {
	case l.Type == kernel.XDP, strings.HasPrefix(l.Type, "tcx/"), strings.HasPrefix(l.Type, "netkit/"):
		i := a.hookOf(l)
		if i < 0 {
			if l.Interface == 0 {
				return
			}
			point.Interface = "index " + strconv.FormatUint(uint64(l.Interface), 10)
			break
		}
		a.hookSeen[i] = true
		point = a.ofHook(a.facts.Hooks[i])
		point.LinkID = l.ID
	case l.NetNS != 0:
		a.netns(&point, l.NetNS)
		if i := a.hookOf(l); i >= 0 {
			a.hookSeen[i] = true
			point.Position = a.facts.Hooks[i].Position
		}
	case l.Cgroup != 0:
		point.Target = printable.Text(a.cgroupPath(l.Cgroup))
		i := slices.IndexFunc(a.facts.CgroupHooks, func(h cgroup.Hook) bool { return h.ID == l.Cgroup && h.Type == l.Type && h.Program == l.Program })
		if i >= 0 {
			a.cgroupSeen[i] = true
			point.Position = a.facts.CgroupHooks[i].Position
		}
	case strings.HasPrefix(l.Type, "cgroup_"), l.Type == "lsm_cgroup":
		return
	}
	for _, program := range a.programsOf(l) {
		a.add(program, point)
	}
}

// programsOf returns the programs of a link. The programs of a struct_ops link belong to
// its map.
func (a *attached) programsOf(l kernel.Link) []uint32 {
	if l.Program != 0 {
		return []uint32{l.Program}
	}
	var programs []uint32
	for _, c := range a.facts.Contained {
		if c.Map == l.Map {
			programs = append(programs, c.Program)
		}
	}
	return programs
}

// hookOf returns the index of the network hook that belongs to a link, or -1. The kernel
// only reports the links of some hooks. Of others, hookOf returns one that isn't another
// link's, because several interfaces can have the same index.
func (a *attached) hookOf(l kernel.Link) int {
	for i, h := range a.facts.Hooks {
		switch {
		case h.Link != 0 || l.Type != h.Type:
			if h.Link == l.ID {
				return i
			}
		case a.hookSeen[i] || h.Program != l.Program:
		case l.NetNS != 0 && h.NetNS == l.NetNS, l.NetNS == 0 && h.Index == l.Interface:
			return i
		}
	}
	return -1
}

func (a *attached) cgroupPath(id uint64) string {
	if path, ok := a.facts.Cgroups[id]; ok {
		return path
	}
	return "id " + strconv.FormatUint(id, 10)
}

func (a *attached) ofHook(h network.Hook) v1alpha1.BpfNodeAttachPoint {
	point := v1alpha1.BpfNodeAttachPoint{Type: h.Type, Interface: printable.Text(h.Name), Mode: h.Mode, Position: h.Position, Priority: h.Priority}
	a.netns(&point, h.NetNS)
	return point
}

func (a *attached) ofAttachment(of kernel.Attachment) v1alpha1.BpfNodeAttachPoint {
	point := v1alpha1.BpfNodeAttachPoint{Type: of.Type, Target: printable.Text(of.Target), TargetProgramID: of.TargetProgram, Priority: of.Priority}
	if group := a.facts.Tracepoints[of.Target]; of.Type == "tracepoint" && group != "" {
		point.Target = printable.Text(group + "/" + of.Target)
	}
	if of.Map != 0 {
		i := slices.IndexFunc(a.facts.Maps, func(m kernel.Map) bool { return m.ID == of.Map })
		if i >= 0 {
			point.Target = printable.Text(a.facts.Maps[i].Name)
		}
	}
	return point
}

// netns sets the network namespace, unless it is the host's, and the pod that it belongs
// to.
func (a *attached) netns(point *v1alpha1.BpfNodeAttachPoint, inode uint64) {
	if len(a.facts.NetNS) > 0 && inode == a.facts.NetNS[0].Inode {
		return
	}
	point.NetNs = strconv.FormatUint(inode, 10)
	for _, namespace := range a.facts.NetNS {
		if namespace.Inode == inode {
			name := a.facts.Names.ByContainer[namespace.Container]
			point.Namespace, point.Pod = printable.Text(name.Namespace), printable.Text(name.Pod)
		}
	}
}

// replaced sets the dispatcher's interface on programs that replace its functions, and
// their positions.
func (a *attached) replaced() {
	dispatchers := map[uint32]bool{}
	for _, program := range a.facts.Programs {
		dispatchers[program.ID] = v1alpha1.IsDispatcher(program.Name)
	}
	for _, points := range a.points {
		for i := range points {
			point := &points[i]
			if point.Type != kernel.Freplace || !dispatchers[point.TargetProgramID] {
				continue
			}
			if slot, err := strconv.Atoi(strings.TrimPrefix(point.Target, "prog")); err == nil && slot >= 0 {
				point.Position = int32(slot) + 1 //nolint:gosec // there are at most ten
			}
			for _, of := range a.points[point.TargetProgramID] {
				if of.Interface != "" {
					point.Interface, point.NetNs, point.Namespace, point.Pod, point.Mode = of.Interface, of.NetNs, of.Namespace, of.Pod, of.Mode
					break
				}
			}
		}
	}
}
