// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"cmp"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
	"github.com/bpfman/bpfman-operator/internal/printable"
)

// Values of BpfNodeHolder.Holds, in the order of the list of holders.
const (
	holdsProgram = "program"
	holdsLink    = "link"
	holdsMap     = "map"
)

// holders returns who holds each program: first the processes, starting with those that
// hold the program itself, then the pins. If no process holds a program anymore, it
// returns the last ones that did.
func holders(facts *Facts) map[uint32][]v1alpha1.BpfNodeHolder {
	all := heldBy{facts: facts, ofLink: programsOfLinks(facts), inMap: map[uint32][]uint32{}, holders: map[uint32][]v1alpha1.BpfNodeHolder{}}
	for _, c := range facts.Contained {
		all.inMap[c.Map] = append(all.inMap[c.Map], c.Program)
	}
	for _, p := range facts.Processes {
		holder := v1alpha1.BpfNodeHolder{Process: printable.Text(p.Name), PID: int32(p.PID)} //nolint:gosec // the kernel limits it
		all.place(&holder, p.Place)
		for _, open := range p.Open {
			all.add(open.Behind, holder)
		}
	}
	for _, program := range facts.Programs {
		if len(all.holders[program.ID]) > 0 {
			continue
		}
		for _, holder := range facts.Last[program.ID] {
			holder.Gone = true
			all.holders[program.ID] = append(all.holders[program.ID], holder)
		}
	}
	for _, pin := range facts.Pins {
		holder := v1alpha1.BpfNodeHolder{Path: printable.Text(pin.Path)}
		all.place(&holder, pin.Place)
		// In a container, anything can be mounted on a path that looks like that of another pod's volume.
		if uid := kubelet.PodOf(pin.Path); uid != "" && pin.Place.Container == "" {
			name := facts.Names.ByPod[uid]
			holder.Namespace, holder.Pod = printable.Text(name.Namespace), printable.Text(name.Pod)
		}
		all.add(pin.Behind, holder)
	}
	for program, list := range all.holders {
		all.holders[program] = inOrder(list)
	}
	return all.holders
}

type heldBy struct {
	facts   *Facts
	ofLink  map[uint32]uint32
	inMap   map[uint32][]uint32
	holders map[uint32][]v1alpha1.BpfNodeHolder
}

// add adds a holder to the programs that the object keeps in the kernel.
func (h *heldBy) add(behind kernel.Described, holder v1alpha1.BpfNodeHolder) {
	switch {
	case behind.Link != 0:
		holder.Holds = holdsLink
		if program := cmp.Or(h.ofLink[behind.Link], behind.Program); program != 0 {
			h.holders[program] = append(h.holders[program], holder)
		}
	case behind.Program != 0:
		holder.Holds = holdsProgram
		h.holders[behind.Program] = append(h.holders[behind.Program], holder)
	case behind.Map != 0:
		holder.Holds = holdsMap
		for _, program := range h.inMap[behind.Map] {
			h.holders[program] = append(h.holders[program], holder)
		}
	}
}

// place sets what a holder belongs to.
func (h *heldBy) place(holder *v1alpha1.BpfNodeHolder, place process.Place) {
	holder.Unit = printable.Text(place.Unit)
	if name, ok := h.facts.Names.ByContainer[place.Container]; ok {
		holder.Namespace, holder.Pod, holder.Container = printable.Text(name.Namespace), printable.Text(name.Pod), printable.Text(name.Container)
		return
	}
	holder.Container = place.Container // a container that isn't the kubelet's has only an id
}

// inOrder sorts holders, with processes before pins, and removes duplicates.
func inOrder(list []v1alpha1.BpfNodeHolder) []v1alpha1.BpfNodeHolder {
	rank := map[string]int{holdsProgram: 0, holdsLink: 1, holdsMap: 2}
	slices.SortFunc(list, func(a, b v1alpha1.BpfNodeHolder) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(rank[a.Holds], rank[b.Holds]), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Process, b.Process))
	})
	return slices.Compact(list)
}
